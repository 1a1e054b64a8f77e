"""Whose KV it is: engines share it only where weights and shapes are the same."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.runner.kv_manifest import _sample, fingerprint, kv_manifest
from engine.runner.model import LoadedModel, load_model


def test_a_model_that_is_loaded_again_is_the_same(
    small_model: LoadedModel, small_checkpoint: Path
) -> None:
    again = load_model(small_checkpoint, dtype="float32", device="cpu")
    assert kv_manifest(again, 16) == kv_manifest(small_model, 16)


def test_another_weight_is_another_model(small_model: LoadedModel, small_checkpoint: Path) -> None:
    other = load_model(small_checkpoint, dtype="float32", device="cpu")
    with torch.no_grad():
        next(other.module.parameters()).mul_(1.001)
    assert fingerprint(other) != fingerprint(small_model)


def test_another_dtype_or_block_size_is_other_kv(
    small_model: LoadedModel, small_checkpoint: Path
) -> None:
    half = load_model(small_checkpoint, dtype="bfloat16", device="cpu")
    ours = kv_manifest(small_model, 16)
    assert ours not in (kv_manifest(half, 16), kv_manifest(small_model, 8))


def test_of_a_large_weight_the_last_element_is_looked_at() -> None:
    """Its place is no number that float32 has."""
    weight = torch.zeros(2**24 + 4, dtype=torch.int8)
    weight[-1] = 7
    assert _sample(weight)[-1] == 7
