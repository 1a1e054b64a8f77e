"""Reads an adapter's weights and holds them against the model's layers.

A file is read whole, so that what is served and what its digest says are the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from engine.lora.adapter_config import CONFIG_FILE, AdapterConfig, read_config
from engine.lora.adapter_error import AdapterError

WEIGHTS_FILE = "adapter_model.safetensors"

_TENSOR = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<half>[AB])\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What a layer takes and gives, by token."""

    in_features: int
    out_features: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptable:
    """What an adapter may look like: the model's layers that can be adapted, and the limits."""

    layers: Mapping[str, LayerShape]
    output_layer: str | None
    """The layer that makes logits: it is not run over all tokens, and cannot be adapted."""
    max_lora_rank: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankPair:
    """One layer's adapter: `down` `[rank, in_features]`, `up` `[rank, out_features]`, scaled."""

    down: torch.Tensor
    up: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedAdapter:
    """An adapter in host memory.

    Attributes:
        digest: of its files; two adapters with the same are the same.
        rank: the largest of its layers.
        pairs: by the layer's name in the model.
    """

    digest: str
    rank: int
    pairs: Mapping[str, LowRankPair]

    @property
    def num_bytes(self) -> int:
        """Memory of its weights."""
        return sum(pair.down.nbytes + pair.up.nbytes for pair in self.pairs.values())


def read_adapter(directory: Path, adaptable: Adaptable) -> LoadedAdapter:
    """Returns the adapter of a directory, in the model's dtype.

    Raises:
        AdapterError: it cannot be read, does not fit the model, or needs what is not built.
    """
    config = read_config(directory)
    if config.max_rank > adaptable.max_lora_rank:
        raise AdapterError(
            f"{directory} has rank {config.max_rank} but max_lora_rank is "
            f"{adaptable.max_lora_rank}: raise --max-lora-rank"
        )
    data = _read_weights(directory)
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise AdapterError(f"{directory / WEIGHTS_FILE} is no safetensors file: {error}") from None
    try:
        halves = _by_module(tensors, adaptable)
        _check_targets(halves.keys(), config, adaptable)
        pairs = {
            name: _pair(name, config, half, adaptable) for name, half in sorted(halves.items())
        }
    except AdapterError as error:
        raise AdapterError(f"{directory}: {error}") from None
    digest = blake2b((directory / CONFIG_FILE).read_bytes(), digest_size=8)
    digest.update(data)
    return LoadedAdapter(
        digest=digest.hexdigest(),
        rank=max(len(pair.down) for pair in pairs.values()),
        pairs=pairs,
    )


def _read_weights(directory: Path) -> bytes:
    path = directory / WEIGHTS_FILE
    try:
        return path.read_bytes()
    except OSError as error:
        raise AdapterError(
            f"{path} cannot be read: {error.strerror or error}; an adapter is a local directory "
            f"with {CONFIG_FILE} and {WEIGHTS_FILE}"
        ) from None


def _by_module(
    tensors: Mapping[str, torch.Tensor], adaptable: Adaptable
) -> dict[str, dict[str, torch.Tensor]]:
    """Returns each module's `A` and `B`."""
    halves: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        found = _TENSOR.fullmatch(name)
        if found is None:
            raise AdapterError(
                f"tensor {name!r} is not a layer's lora_A or lora_B: embeddings, biases and whole "
                "modules cannot be served"
            )
        if found["module"] not in adaptable.layers:
            raise AdapterError(_complaint_about_module(found["module"], adaptable))
        halves.setdefault(found["module"], {})[found["half"]] = tensor
    if not halves:
        raise AdapterError(f"{WEIGHTS_FILE} has no tensors")
    return halves


def _complaint_about_module(module: str, adaptable: Adaptable) -> str:
    if module == adaptable.output_layer:
        return f"it adapts {module}, which makes the logits: train it without that layer"
    example = next(iter(adaptable.layers), "none")
    return (
        f"it adapts {module!r}, which is no linear layer of this model that can be adapted (one is "
        f"{example}): was it trained on another model?"
    )


def _check_targets(found: object, config: AdapterConfig, adaptable: Adaptable) -> None:
    """Refuses an adapter whose weights are not of the modules that its configuration names."""
    named = {name for name in adaptable.layers if config.targets(name)}
    apart = sorted(named ^ set(found))  # type: ignore[call-overload]
    if apart:
        told = "names it" if apart[0] in named else "does not name it"
        where = "has no tensors of it" if apart[0] in named else "has tensors of it"
        raise AdapterError(
            f"target_modules and tensors differ by {len(apart)} modules, the first is {apart[0]}: "
            f"{CONFIG_FILE} {told}, {WEIGHTS_FILE} {where}"
        )


def _pair(
    name: str, config: AdapterConfig, halves: Mapping[str, torch.Tensor], adaptable: Adaptable
) -> LowRankPair:
    """Returns a layer's weights, the scaling worked into the second."""
    shape, rank = adaptable.layers[name], config.rank_of(name)
    wanted = {"A": (rank, shape.in_features), "B": (shape.out_features, rank)}
    for half, size in wanted.items():
        got = None if half not in halves else tuple(halves[half].shape)
        if got != size:
            raise AdapterError(f"{name}.lora_{half} is {got} but has to be {size}")
    down = halves["A"].to(adaptable.dtype).contiguous()
    up = (halves["B"].float() * config.scaling_of(name)).to(adaptable.dtype).T.contiguous()
    # Not a number times 0 is not a number: it would get into other requests of the batch.
    if not (down.isfinite().all() and up.isfinite().all()):
        raise AdapterError(f"{name} has values that are not finite in {adaptable.dtype}")
    return LowRankPair(down=down, up=up)
