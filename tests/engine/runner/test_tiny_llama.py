from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from engine.runner.cache_directory import default_cache_dir
from engine.runner.model import load_model
from engine.runner.model_runner import ModelRunner
from engine.runner.tiny_llama import tiny_llama, write_tiny_llama
from engine.scheduler import Scheduler
from tests.engine.runner.builders import engine_config, request, run_all


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("cache"))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_two_makes_are_equal_to_the_byte(directory: Path, tmp_path: Path) -> None:
    torch.rand(3)  # the state of torch's own generator must not matter
    write_tiny_llama(tmp_path)
    assert contents(directory) == contents(tmp_path)


def test_making_it_leaves_torchs_random_state_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    write_tiny_llama(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_cached_one_is_not_made_again(directory: Path) -> None:
    made_at = (directory / "config.json").stat().st_mtime_ns
    assert tiny_llama(directory.parent) == directory
    assert (directory / "config.json").stat().st_mtime_ns == made_at


def test_two_processes_at_once_make_one_in_silence(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from engine.runner.tiny_llama import tiny_llama; "
        "tiny_llama(Path(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert said == [(b"", b"")] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-llama-v2"]


def test_no_network_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError(f"the network was asked: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    directory = tiny_llama(tmp_path)
    load_model(directory)
    AutoTokenizer.from_pretrained(directory, local_files_only=True)


def test_its_place_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "stepscope"


@pytest.mark.parametrize("text", ["", "Hello, wörld!\n", " two  spaces ", "日本 🙂", "<|eos|x"])
def test_text_survives_its_tokenizer(directory: Path, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    token_ids = tokenizer(text).input_ids
    assert token_ids[0] == tokenizer.bos_token_id
    assert len(token_ids) == 1 + len(text.encode())
    assert tokenizer.decode(token_ids, skip_special_tokens=True) == text


def test_it_names_its_end_and_its_positions(directory: Path) -> None:
    model = load_model(directory, device="cpu")
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    assert model.eos_token_ids == (tokenizer.eos_token_id,)
    assert model.max_position == 4096
    assert model.vocab_size == len(tokenizer)


def test_it_does_not_repeat_itself(directory: Path) -> None:
    model = load_model(directory, device="cpu")
    config = engine_config()
    tokens = run_all(Scheduler(config), ModelRunner(model, config), [request(0, [72, 105])])
    assert len(set(tokens["r0"])) > 32
