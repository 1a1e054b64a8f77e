"""A decoder checkpoint, loaded: the `transformers` model with our paged attention in it.

Reads a local directory only (config and safetensors); it never asks a network. Not responsible for
the tokenizer, nor for what goes into the model: see `engine.runner.model_runner`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.config import KVGroupConfig, LoRAConfig
from engine.lora.layers import AdapterMapping, LoRALayers, adapt_layers
from engine.runner.attention import ATTENTION_NAME, register
from engine.runner.attention_needs import LayerNeeds, ask_layers
from engine.runner.cpu_linear import pack_linear_layers
from engine.runner.cpu_norm import fuse_norms
from engine.runner.cpu_rotary import tabulate_rotations
from engine.runner.kv_tensors import KVShape
from engine.runner.layer_call import StepAttention
from engine.runner.layer_groups import group_layers
from engine.runner.model_error import ModelError
from engine.runner.quiet_loading import quiet_loading

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""What `--dtype` may name, besides auto."""

_LAYER_TYPES = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardInputs:
    """A forward pass, on the model's device.

    Attributes:
        token_ids: `[num_tokens]`, all sequences' side by side.
        positions: `[num_tokens]`, place of each in its sequence.
        logits_indices: `[num_samples]`, which of the tokens want logits.
        metadata: who attends to what.
        adapters: which tokens have which adapter; None where none has one.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    logits_indices: torch.Tensor
    metadata: StepAttention
    adapters: AdapterMapping | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run.

    Attributes:
        module: the `transformers` model, in evaluation mode on `device`.
        kv_shape: what its KV cache holds.
        eos_token_ids: the tokens that end its texts; empty where the checkpoint names none.
        weights_bytes: memory of its parameters, and of the adapters' slots.
        lora: its layers' adapters; None where it was loaded without.
        layers: what each wants of attention.
    """

    module: torch.nn.Module
    name: str
    device: torch.device
    dtype: torch.dtype
    kv_shape: KVShape
    vocab_size: int
    max_position: int
    eos_token_ids: tuple[int, ...]
    weights_bytes: int
    lora: LoRALayers | None = None
    layers: tuple[LayerNeeds, ...] = ()

    def kv_groups(self, block_size: int) -> tuple[KVGroupConfig, ...]:
        """Returns the KV groups as the scheduler has to keep them."""
        return tuple(group.config(block_size) for group in self.kv_shape.groups)

    def logits(self, inputs: ForwardInputs) -> torch.Tensor:
        """Returns the logits `[num_samples, vocab_size]` of the tokens that want them."""
        if self.lora is not None:
            self.lora.active.mapping = inputs.adapters
        output = self.module(
            input_ids=inputs.token_ids[None],
            position_ids=inputs.positions[None],
            use_cache=False,
            logits_to_keep=inputs.logits_indices,
            attention_metadata=inputs.metadata,
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def load_model(
    path: str | Path,
    *,
    dtype: DtypeName = "auto",
    device: str | None = None,
    lora: LoRAConfig | None = None,
) -> LoadedModel:
    """Returns the checkpoint of a local directory, ready to run; see also `checkpoints`.

    Args:
        path: directory with `config.json` and safetensors.
        dtype: of weights and KV cache; `auto` is the checkpoint's.
        device: `cpu` or `cuda`; None takes CUDA where there is one.
        lora: the adapters that its layers get room for.

    Raises:
        ModelError: the directory has no such checkpoint, or the model needs what is not built.
    """
    directory = Path(path)
    chosen = _choose_device(device)
    try:
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
        text_config = config.get_text_config(decoder=True)
        _check_supported(text_config)
        torch_dtype = _choose_dtype(dtype, text_config)
        module = _load_module(directory, torch_dtype)
    except ModelError:
        raise
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{directory} cannot be loaded as a causal language model: {error}"
        ) from error
    return ready_model(
        module.to(chosen), text_config, name=directory.name, dtype=torch_dtype, lora=lora
    )


def ready_model(
    module: Any,
    config: Any,
    *,
    name: str,
    dtype: torch.dtype,
    lora: LoRAConfig | None = None,
) -> LoadedModel:
    """Returns a `transformers` model ready to run, on the device that it is on.

    Args:
        module: with `ATTENTION_NAME` as its attention (see `register`).
        config: its text configuration.
        name: of the model.
        dtype: of its weights and KV cache.
        lora: the adapters that its layers get room for.

    Raises:
        ModelError: it cannot be served.
    """
    module = module.eval()
    device = next(module.parameters()).device
    num_bytes = sum(p.numel() * p.element_size() for p in module.parameters())
    layers = ask_layers(module, config)
    if device.type == "cpu":
        fuse_norms(module)
        tabulate_rotations(module)
        pack_linear_layers(module, dtype)
    adapted = None
    if lora is not None:
        adapted = adapt_layers(module, max_loras=lora.max_loras, max_lora_rank=lora.max_lora_rank)
    return LoadedModel(
        module=module,
        name=name,
        device=device,
        dtype=dtype,
        layers=layers,
        kv_shape=_kv_shape(layers, dtype),
        vocab_size=int(config.vocab_size),
        max_position=int(config.max_position_embeddings),
        eos_token_ids=_eos_token_ids(module, config),
        weights_bytes=num_bytes + (0 if adapted is None else adapted.num_bytes),
        lora=adapted,
    )


def _choose_device(name: str | None) -> torch.device:
    has_cuda = torch.cuda.is_available()
    device = torch.device(name or ("cuda" if has_cuda else "cpu"))
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not has_cuda):
        available = "cpu or cuda" if has_cuda else "cpu"
        raise ModelError(f"device is {str(device)!r}: this machine and engine can use {available}")
    return device


def _load_module(directory: Path, dtype: torch.dtype) -> Any:
    register()
    with quiet_loading():
        return AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=dtype,
            attn_implementation=ATTENTION_NAME,
            local_files_only=True,
            use_safetensors=True,
        )


def _check_supported(config: Any) -> None:
    """Raises where the configuration alone says that the model cannot be served."""
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES)
    model_class = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if getattr(config, "is_encoder_decoder", False):
        kinds = ["an encoder"]
    elif model_class is not None and not model_class._supports_attention_backend:
        kinds = ["attention that cannot be replaced"]
    if kinds:
        raise ModelError(
            f"model type {config.model_type!r} has {', '.join(kinds)}: only decoders with full or "
            "sliding attention in every layer can run; use another model"
        )


def _choose_dtype(name: DtypeName, config: Any) -> torch.dtype:
    if name != "auto":
        return DTYPES[name]
    stored = getattr(config, "dtype", None)
    return next((dtype for dtype in DTYPES.values() if dtype is stored), torch.float32)


def _kv_shape(layers: tuple[LayerNeeds, ...], dtype: torch.dtype) -> KVShape:
    return KVShape(
        groups=group_layers([layer.sliding_window for layer in layers]),
        num_kv_heads=layers[0].num_kv_heads,
        key_dim=layers[0].key_dim,
        value_dim=layers[0].value_dim,
        dtype=dtype,
    )


def _eos_token_ids(module: Any, config: Any) -> tuple[int, ...]:
    generation = getattr(module, "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = config.eos_token_id
    if ids is None:
        return ()
    return (int(ids),) if isinstance(ids, int) else tuple(int(i) for i in ids)
