from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.runner.gguf_file import is_gguf, unpacked
from engine.runner.model import load_model
from engine.runner.model_error import ModelError
from engine.runner.model_runner import ModelRunner
from engine.scheduler import Scheduler
from engine.text.tokenizer import Tokenizer
from tests.engine.runner.builders import engine_config, plain_choices, request, run_all
from tests.engine.runner.gguf_builder import BOS, CHAT_TEMPLATE, write_gguf


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf")


@pytest.fixture(scope="module")
def checkpoint(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(file, tmp_path_factory.mktemp("cache"), torch.float32)


def test_its_tokens_are_those_that_transformers_reads_out_of_the_file(
    file: Path, checkpoint: Path
) -> None:
    model = load_model(checkpoint, device="cpu")
    config = engine_config(budget=16)
    prompt = [BOS, 72, 101, 108, 108, 111]
    tokens = run_all(Scheduler(config), ModelRunner(model, config), [request(0, prompt)])["r0"]
    plain = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    assert len(set(tokens)) > 10
    assert tokens == plain_choices(plain.eval(), prompt, tokens)[0]


def test_its_tokenizer_and_chat_template_come_along(checkpoint: Path) -> None:
    tokenizer = Tokenizer.load(checkpoint)
    assert tokenizer is not None
    assert tokenizer.encode("Hello") == [BOS, 72, 101, 108, 108, 111]
    assert tokenizer.decode([72, 105]) == "Hi"
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.special_tokens["bos_token"] == "<s>"


@pytest.mark.parametrize("adds_bos", [False, None])
def test_no_bos_is_added_where_the_file_does_not_say_so(
    adds_bos: bool | None, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "small.gguf", adds_bos=adds_bos)
    tokenizer = Tokenizer.load(unpacked(file, tmp_path, torch.float32))
    assert tokenizer is not None
    assert tokenizer.encode("Hi") == [72, 105]


def test_it_is_unpacked_once_for_each_dtype_and_again_when_it_changes(
    file: Path, checkpoint: Path, tmp_path: Path
) -> None:
    written = (checkpoint / "config.json").stat().st_mtime_ns
    assert unpacked(file, checkpoint.parent, torch.float32) == checkpoint
    assert (checkpoint / "config.json").stat().st_mtime_ns == written
    short = unpacked(file, checkpoint.parent, torch.bfloat16)
    assert short != checkpoint
    assert load_model(short, device="cpu").dtype == torch.bfloat16
    os.utime(file, ns=(1, 1))
    assert unpacked(file, tmp_path, torch.float32).name != checkpoint.name


def test_an_architecture_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "odd.gguf", architecture="martian")
    with pytest.raises(ModelError, match=r"odd\.gguf cannot be unpacked: .*martian"):
        unpacked(file, tmp_path, torch.float32)
    assert [path.name for path in tmp_path.iterdir()] == ["odd.gguf"]


def test_a_file_is_told_by_its_first_bytes(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"ELF")
    assert is_gguf(file)
    assert not is_gguf(tmp_path / "other.gguf")
    assert not is_gguf(tmp_path)
