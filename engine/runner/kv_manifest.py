"""What decides whether two engines' KV is interchangeable: the model's weights, its shapes."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import torch

from engine.runner.model import LoadedModel

NUM_SAMPLES = 4096
"""Elements of each weight that the fingerprint covers, spread over all of it."""

_SAYS_NOTHING = ("_name_or_path", "transformers_version", "architectures", "dtype")
"""Of a model's configuration, what does not shape its KV or is told elsewhere."""


def kv_manifest(model: LoadedModel, block_size: int) -> dict[str, Any]:
    """Returns what a block of KV is of, as plain values."""
    shape = model.kv_shape
    return {
        "format": 1,
        "model": fingerprint(model),
        "dtype": str(shape.dtype).removeprefix("torch."),
        "block_size": block_size,
        "num_tensors": shape.num_tensors,
        "num_kv_heads": shape.num_kv_heads,
        "key_dim": shape.key_dim,
        "value_dim": shape.value_dim,
        "groups": [[list(group.layers), group.sliding_window] for group in shape.groups],
    }


def fingerprint(model: LoadedModel) -> str:
    """Returns a digest of a model's configuration and weights.

    Of each weight some thousand elements are looked at, which takes a moment for a model of any
    size: models that differ nowhere among them would have to be made on purpose.
    """
    digest = blake2b(digest_size=16)
    whole: dict[str, Any] = cast("Any", model.module).config.to_dict()
    config = {name: value for name, value in whole.items() if name not in _SAYS_NOTHING}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weight in sorted(model.module.state_dict().items()):
        digest.update(f"{name}\0{tuple(weight.shape)}\0{weight.dtype}\0".encode())
        digest.update(_sample(weight).tobytes())
    return digest.hexdigest()


def _sample(weight: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    flat = weight.detach().reshape(-1)
    places = np.linspace(0, max(0, len(flat) - 1), min(len(flat), NUM_SAMPLES)).astype(np.int64)
    sample: np.ndarray[Any, np.dtype[np.float64]] = (
        flat[torch.from_numpy(places).to(flat.device)].to(torch.float64).cpu().numpy()
    )
    return sample
