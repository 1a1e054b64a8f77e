"""A GGUF file, unpacked once into a `transformers` checkpoint.

Reading a GGUF means parsing its vocabulary several times and unpacking its weights, a minute or two
for a small model; the checkpoint that comes of it loads in a second. It takes the room of unpacked
weights in the cache directory, and holds all that the file says: weights, tokenizer, chat template.

Source: GGUF's specification (docs/gguf.md of ggml); `transformers` does the reading.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from engine.runner.cache_directory import made_once
from engine.runner.model_error import ModelError
from engine.runner.quiet_loading import quiet_loading

VERSION = 1
"""Rises when what is written changes, so that what an older version unpacked is left alone."""

_MAGIC = b"GGUF"
_BOOL, _STRING = 7, 8
"""Types of metadata values."""


def is_gguf(path: Path) -> bool:
    """Whether a path is a GGUF file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == _MAGIC


def unpacked(path: Path, cache_dir: Path, dtype: torch.dtype) -> Path:
    """Returns the directory of a file's checkpoint, unpacking it first if that is still to do.

    The file is known by its place, size and time of change.

    Args:
        dtype: of the unpacked weights.

    Raises:
        ModelError: `transformers` cannot read it.
    """
    return made_once(
        unpacked_directory(path, cache_dir, dtype),
        lambda directory: _unpack(path, directory, dtype),
    )


def unpacked_directory(path: Path, cache_dir: Path, dtype: torch.dtype) -> Path:
    """Returns where a file's checkpoint is, or will be."""
    stat = path.stat()
    identity = f"{VERSION} {path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return cache_dir / f"{path.stem}-{digest}-{str(dtype).removeprefix('torch.')}"


def _unpack(path: Path, directory: Path, dtype: torch.dtype) -> None:
    source: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    try:
        with quiet_loading(warnings=False):
            config = AutoConfig.from_pretrained(path.parent, **source)
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **source)
            model = AutoModelForCausalLM.from_pretrained(
                path.parent, config=config, dtype=dtype, **source
            )
            model.hf_quantizer = None  # its weights are plain by now
            model.config.__dict__.pop("quantization_config", None)
            model.save_pretrained(directory)
            tokenizer.save_pretrained(directory)
    except Exception as error:  # it is read by several libraries, and anybody may have written it
        raise ModelError(f"{path} cannot be unpacked: {error}") from error
    _note_bos(path, directory / "tokenizer_config.json")


def _note_bos(path: Path, tokenizer_config: Path) -> None:
    """Writes down whether a text's tokens begin with BOS, which `transformers` does not take over.

    Without a word in the file SentencePiece vocabularies do and the others do not, as in llama.cpp.
    """
    adds_bos = _metadata(path, "tokenizer.ggml.add_bos_token")
    if adds_bos is None:
        adds_bos = _metadata(path, "tokenizer.ggml.model") == "llama"
    settings = json.loads(tokenizer_config.read_text(encoding="utf-8"))
    settings["add_bos_token"] = adds_bos
    tokenizer_config.write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")


def _metadata(path: Path, key: str) -> bool | str | None:
    """Returns a boolean or a text out of a file's metadata; None without one.

    It is looked for by its spelling: walking through the vocabulary before it takes seconds.
    """
    name = struct.pack("<Q", len(key)) + key.encode()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(name)
        if place < 0:
            return None
        place += len(name)
        (kind,) = struct.unpack_from("<I", content, place)
        if kind == _BOOL:
            return bool(content[place + 4])
        if kind == _STRING:
            (length,) = struct.unpack_from("<Q", content, place + 4)
            return content[place + 12 : place + 12 + length].decode()
    return None
