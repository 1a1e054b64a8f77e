"""`adapter_config.json` of a PEFT LoRA: what is read from it, and what keeps it from being served.

An option that would change what the adapter computes, and that is not built here, is refused; so is
one that nobody here has heard of, unless it is off. To ignore it would be to serve another model.

Source: PEFT, src/peft/tuners/lora/config.py (options), src/peft/tuners/tuners_utils.py
(`check_target_module_exists`) and src/peft/utils/other.py (`get_pattern_key`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from engine.lora.adapter_error import AdapterError

Value = TypeVar("Value")

CONFIG_FILE = "adapter_config.json"

ALL_LINEAR = "all-linear"

_NOT_SERVED = {
    "use_dora": "DoRA",
    "lora_bias": "a bias of its own",
    "modules_to_save": "whole modules beside the low-rank ones",
    "trainable_token_indices": "trained embeddings",
    "target_parameters": "adapters on bare parameters (experts)",
    "layer_replication": "replicated layers",
    "alora_invocation_tokens": "Activated LoRA",
    "use_qalora": "QALoRA",
    "use_bdlora": "block-diagonal LoRA",
    "arrow_config": "Arrow routing",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "megatron_config": "Megatron's layers",
}
"""Options that change what an adapter computes, by what they are."""

_OF_NO_CONCERN = {
    *("auto_mapping", "base_model_name_or_path", "inference_mode", "peft_type", "peft_version"),
    *("revision", "task_type", "lora_dropout", "fan_in_fan_out", "megatron_core", "runtime_config"),
    *("loftq_config", "eva_config", "corda_config", "lora_ga_config", "velora_config"),
    *("qalora_group_size", "ensure_weight_tying"),
}
"""Options that say how it was trained or stored. `fan_in_fan_out` is how the layer that it is added
to lays out its weights, which is plain from the layer."""

_READ = {
    *("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias"),
    *("init_lora_weights", "target_modules", "exclude_modules", "layers_to_transform"),
    "layers_pattern",
}

_CHANGES_BASE_WEIGHTS = ("pissa", "olora", "corda", "loftq", "pi")
"""Beginnings of `init_lora_weights` that stand for a training beside changed base weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """What has to be known of an adapter besides its weights.

    `target_modules` are names or ends of names, one regular expression, or `all-linear`.
    """

    r: int
    lora_alpha: float
    target_modules: tuple[str, ...] | str
    use_rslora: bool = False
    exclude_modules: tuple[str, ...] | str = ()
    layers_to_transform: tuple[int, ...] | None = None
    layers_pattern: tuple[str, ...] = ()
    rank_pattern: Mapping[str, int] = field(default_factory=dict)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict)

    def rank_of(self, module: str) -> int:
        """Returns the rank of a module's adapter."""
        return next(_matching(self.rank_pattern, module), self.r)

    def scaling_of(self, module: str) -> float:
        """Returns what a module's low-rank product is multiplied by."""
        alpha, rank = (
            next(_matching(self.alpha_pattern, module), self.lora_alpha),
            self.rank_of(module),
        )
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    @property
    def max_rank(self) -> int:
        """The largest rank that it names."""
        return max((self.r, *self.rank_pattern.values()))

    def targets(self, module: str) -> bool:
        """Whether it adapts a module of this name, if that is a layer that can be adapted."""
        if _names(self.exclude_modules, module):
            return False
        if self.target_modules == ALL_LINEAR:  # as PEFT has it: of what can be adapted
            return True
        if isinstance(self.target_modules, str) or self.layers_to_transform is None:
            return _names(self.target_modules, module)
        return _names(self.target_modules, module) and self._is_in_layers(module)

    def _is_in_layers(self, module: str) -> bool:
        patterns = [rf"(?:^|.*?\.){pattern}\.(\d+)\." for pattern in self.layers_pattern]
        for pattern in patterns or [r".*?\.[^.]*\.(\d+)\."]:
            if found := re.match(pattern, module):
                return int(found[1]) in (self.layers_to_transform or ())
        return False


def read_config(directory: Path) -> AdapterConfig:
    """Returns an adapter's configuration.

    Raises:
        AdapterError: there is none, or it cannot be served.
    """
    path = directory / CONFIG_FILE
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise AdapterError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise AdapterError(f"{path} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise AdapterError(f"{path} holds no JSON object")
    try:
        _refuse_what_is_not_served(fields)
        return _parse(fields)
    except AdapterError as error:
        raise AdapterError(f"{path}: {error}") from None
    except (TypeError, ValueError, AttributeError, KeyError, re.error) as error:
        raise AdapterError(f"{path}: {type(error).__name__}: {error}") from None


def _refuse_what_is_not_served(fields: Mapping[str, Any]) -> None:
    kind = str(fields.get("peft_type"))
    if kind.upper() != "LORA":
        raise AdapterError(f"peft_type is {kind!r}: only LORA can be served")
    if fields.get("bias", "none") != "none":
        raise AdapterError(f"bias is {fields['bias']!r}: only none can be served")
    for name, what in _NOT_SERVED.items():
        if fields.get(name):
            raise AdapterError(f"{name} is {_shown(fields[name])}: {what} cannot be served")
    start = fields.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE_WEIGHTS):
        raise AdapterError(
            f"init_lora_weights is {start!r}: it was trained beside changed base weights; convert "
            "it with PEFT (path_initial_model_for_weight_conversion)"
        )
    for name in fields.keys() - _NOT_SERVED.keys() - _OF_NO_CONCERN - _READ:
        if fields[name]:
            raise AdapterError(
                f"{name} is {_shown(fields[name])}, an option that is not known here: save the "
                "adapter without it"
            )


def _parse(fields: Mapping[str, Any]) -> AdapterConfig:
    config = AdapterConfig(
        r=_rank("r", fields["r"]),
        lora_alpha=_alpha("lora_alpha", fields["lora_alpha"]),
        target_modules=_targets(fields.get("target_modules")),
        use_rslora=bool(fields.get("use_rslora", False)),
        exclude_modules=_targets(fields.get("exclude_modules") or []),
        layers_to_transform=_layers(fields.get("layers_to_transform")),
        layers_pattern=_as_tuple(fields.get("layers_pattern") or []),
        rank_pattern={
            key: _rank(f"rank_pattern {key!r}", value)
            for key, value in (fields.get("rank_pattern") or {}).items()
        },
        alpha_pattern={
            key: _alpha(f"alpha_pattern {key!r}", value)
            for key, value in (fields.get("alpha_pattern") or {}).items()
        },
    )
    config.targets("a.0.b")  # its regular expressions compile
    config.scaling_of("a.0.b")
    return config


def _targets(value: Any) -> tuple[str, ...] | str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise AdapterError(f"target_modules is {_shown(value)}: name modules or give one expression")


def _layers(value: int | list[int] | None) -> tuple[int, ...] | None:
    if value is None or value == []:
        return None
    return (value,) if isinstance(value, int) else tuple(value)


def _as_tuple(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _rank(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise AdapterError(f"{name} is {_shown(value)}: a rank is a whole number from 1")
    return value


def _alpha(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise AdapterError(f"{name} is {_shown(value)}: it must be a finite number")
    return float(value)


def _names(targets: tuple[str, ...] | str, module: str) -> bool:
    """Whether a module is meant by names (or ends of them), or by one regular expression."""
    if isinstance(targets, str):
        return re.fullmatch(targets, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in targets)


def _matching(pattern: Mapping[str, Value], module: str) -> Iterator[Value]:
    """Yields the values of the patterns that a module's name ends with."""
    return (value for key, value in pattern.items() if re.match(rf"(.*\.)?({key})$", module))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
