"""vLLM's settings as the record keeps them: by what they are, never whole.

Numbers, flags and short names are copied; addresses, paths, keys, environments, nested objects and
whatever a connector was configured with are not. Nothing of a prompt is in any of these parts.
"""

from __future__ import annotations

import enum
import json
import math
import re
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from telemetry.sources.vllm.compatibility import Compatibility

PARTS = (
    "scheduler_config",
    "cache_config",
    "parallel_config",
    "lora_config",
    "speculative_config",
    "kv_transfer_config",
    "kv_events_config",
    "ec_transfer_config",
    "observability_config",
    "structured_outputs_config",
)
"""Parts of vLLM's configuration that become parts of `settings`, without `_config`."""

MODEL_SETTINGS = ("model", "runner_type", "dtype", "quantization", "max_model_len", "enforce_eager")

FULL, WINDOWED = "FullAttentionSpec", "SlidingWindowSpec"
"""Kinds of a layer's KV, in vLLM's words: it keeps every token, or a window's."""

PRIVATE = re.compile(
    r"secret|token$|tokens?_file|password|passwd|credential|key|auth|"
    r"(^|_)(ip|ips|addr|address|host|endpoint|url|uri|path|dir|id|env|extra|topic)(_|$)"
)
"""Names of settings that may say who, where, or how to get in: they are left out."""
MAX_TEXT = 120
MAX_ITEMS = 64


def plugin_state(compatibility: Compatibility) -> dict[str, Any]:
    """Returns what the plug-in says of itself in `settings`, under `stepscope`."""
    return {
        "scheduler": compatibility.scheduler,
        "is_tested": compatibility.is_tested,
        "features": asdict(compatibility.features),
        "lacking": dict(compatibility.lacking),
    }


def settings_json(scheduler: Any, compatibility: Compatibility) -> str:
    """Returns vLLM's settings, part by part, and the plug-in's state, as JSON."""
    config = scheduler.vllm_config
    settings: dict[str, Any] = {"stepscope": plugin_state(compatibility)}
    model = getattr(config, "model_config", None)
    settings["model"] = {name: plain(getattr(model, name, None)) for name in MODEL_SETTINGS}
    for name in PARTS:
        part = getattr(config, name, None)
        settings[name.removesuffix("_config")] = None if part is None else public_settings(part)
    settings["kv_cache_groups"] = kv_groups(scheduler)
    settings["shutdown_timeout"] = plain(getattr(config, "shutdown_timeout", None))
    settings["log_stats"] = plain(getattr(scheduler, "log_stats", None))
    endpoint = getattr(getattr(config, "observability_config", None), "otlp_traces_endpoint", None)
    settings["has_otlp_traces"] = bool(endpoint)
    return json.dumps(settings, separators=(",", ":"))


def kv_groups(scheduler: Any) -> list[dict[str, Any]]:
    """Returns the groups of layers that have block tables of their own, in our words if any."""
    layout = getattr(scheduler, "kv_cache_config", None)
    groups = getattr(layout, "kv_cache_groups", None) or ()
    return [_group(getattr(each, "kv_cache_spec", None)) for each in groups]


def _group(spec: Any) -> dict[str, Any]:
    inner = getattr(spec, "kv_cache_specs", None)  # layers that differ in nothing but their sizes
    spec = next(iter(inner.values())) if inner else spec
    kinds, window = [each.__name__ for each in type(spec).__mro__], None
    kind = kinds[0]
    if FULL in kinds:
        kind = "full"
    elif WINDOWED in kinds:
        kind, window = "sliding_window", spec.sliding_window
    block_size = plain(getattr(spec, "block_size", None))
    return {"kind": kind, "block_size": block_size, "sliding_window": plain(window)}


def public_settings(part: Any) -> dict[str, Any]:
    """Returns the settings of one part that are plain and say nothing private."""
    names = [f.name for f in fields(part)] if is_dataclass(part) else list(vars(part))
    found = {}
    for name in names:
        value = getattr(part, name, None)
        if name.startswith("_") or PRIVATE.search(name) or not _is_plain(value):
            continue
        found[name] = plain(value)
    return found


def plain(value: Any) -> Any:
    """Returns a setting as JSON has it; None for what is no number, flag or short name."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        return [plain(item) for item in items[:MAX_ITEMS]]
    text = str(value)
    is_place = "://" in text or text.startswith(("/", "~", "."))
    return None if is_place or not text.isprintable() else text[:MAX_TEXT]


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, enum.Enum | bool | int | float | str)
