"""What an operator knows besides the scrapes: `config.json`, the flags an engine was launched with.

Names are vLLM's, written as flags (`--max-num-seqs`, `no-enable-prefix-caching`) or as settings
(`max_num_seqs`); SGLang's are known too. What a step log has a column for goes there; the whole
goes into `settings`, without what may say who, where or how to get in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from telemetry.errors import ImportRefused
from telemetry.sources.vllm.settings import PRIVATE, plain

FILE_NAME = "config.json"
MOST_BYTES = 1 << 20

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}
_NESTED = {
    "kv_transfer_config": ("kv_connector", "kv_role"),
    "speculative_config": ("num_speculative_tokens",),
}
"""Settings that are objects, and what of them has a column."""


def read_flags(path: Path) -> dict[str, Any]:
    """Returns the flags of a file, by the names of vLLM's settings.

    Raises:
        ImportRefused: It is no JSON object.
    """
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_BYTES + 1))
    except (OSError, ValueError, RecursionError) as error:
        raise ImportRefused(
            f"{path} cannot be read as JSON ({error}): put launch flags into it, like "
            '{"max_num_seqs": 256}, or move it away'
        ) from None
    if not isinstance(found, dict):
        raise ImportRefused(
            f'{path} is no JSON object: put launch flags into it, like {{"max_num_seqs": 256}}, '
            "or move it away"
        )
    return {_setting(name): value for name, value in found.items()}


def _setting(flag: str) -> str:
    """Returns the name of a setting, however its flag is written."""
    return flag.strip().lstrip("-").replace("-", "_")


def public(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags without addresses, paths, keys and what lies deeper."""
    return {
        name: plain(value)
        for name, value in flags.items()
        if not PRIVATE.search(name) and not isinstance(value, dict)
    }


def columns(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of `engines` that flags fill; what does not fit is left out."""
    known = dict(flags)
    for name, parts in _NESTED.items():
        nested = _object(flags.get(name))
        known = {part: nested[part] for part in parts if part in nested} | known
    found = {}
    for column, names, read in _COLUMNS:
        for name in names:
            value = read(known[name]) if name in known else _denied(known, name)
            if value is not None:
                found[column] = value
                break
    return found


def _object(value: Any) -> Mapping[str, Any]:
    """Returns a setting that is an object, also where it is written as a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _denied(flags: Mapping[str, Any], name: str) -> bool | None:
    """Returns False where `--no-NAME` stands among the flags."""
    return False if flag(flags.get(f"no_{name}")) else None


def count(value: Any) -> int | None:
    """Returns a count, as a number or written out; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = number(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None


def number(value: Any) -> float | None:
    """Returns a finite number, as one or written out; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < float("inf") else None


def flag(value: Any) -> bool | None:
    """Returns a flag, as one or written out; None for anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())


def text(value: Any) -> str | None:
    """Returns a short name; None for anything else."""
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) and 0 < len(value) <= 200 else None


def _role(value: Any) -> str | None:
    found = text(value)
    return ROLES.get(found or "", found if found in ROLES.values() else None)


_COLUMNS: tuple[tuple[str, tuple[str, ...], Callable[[Any], Any]], ...] = (
    ("version", ("version", "vllm_version", "engine_version", "sglang_version"), text),
    ("model", ("served_model_name", "model", "model_path"), text),
    ("device", ("device",), text),
    ("role", ("role", "kv_role", "disaggregation_mode"), _role),
    ("policy", ("policy", "scheduling_policy", "schedule_policy"), text),
    ("max_num_seqs", ("max_num_seqs", "max_running_requests"), count),
    ("max_num_active_seqs", ("max_num_active_seqs",), count),
    ("max_num_batched_tokens", ("max_num_batched_tokens", "chunked_prefill_size"), count),
    ("max_num_scheduled_tokens", ("max_num_scheduled_tokens",), count),
    ("max_model_len", ("max_model_len", "context_length"), count),
    ("block_size", ("block_size", "page_size"), count),
    ("enable_prefix_caching", ("enable_prefix_caching",), flag),
    ("enable_chunked_prefill", ("enable_chunked_prefill",), flag),
    ("long_prefill_token_threshold", ("long_prefill_token_threshold",), count),
    ("reserve_full_prompt", ("scheduler_reserve_full_isl",), flag),
    ("watermark", ("watermark",), number),
    ("gpu_memory_utilization", ("gpu_memory_utilization", "mem_fraction_static"), number),
    ("async_scheduling", ("async_scheduling",), flag),
    ("max_loras", ("max_loras", "max_loras_per_batch"), count),
    ("num_speculative_tokens", ("num_speculative_tokens",), count),
    ("kv_connector", ("kv_connector",), text),
    ("num_kv_tokens", ("kv_cache_size_tokens",), count),
)
"""Column, names of the setting (the first that is there counts), and how its value is read."""
