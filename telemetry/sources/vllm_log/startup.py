"""The lines of an engine's start: version, settings, the size of its KV cache, its memory.

What a line tells goes to the columns of `engines` that a rule reads, and to `settings`. Settings
are kept by what they are: names that may hold keys, paths or addresses are left out, as the plug-in
leaves them out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from telemetry.sources.vllm.settings import PRIVATE, plain
from telemetry.sources.vllm_log.reprs import settings_of

GIB = 1 << 30
_UNITS = {"GB": GIB, "GiB": GIB, "MiB": 1 << 20}  # vLLM's GB are GiB

_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}
_SAME = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "block_size",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "gpu_memory_utilization",
    "async_scheduling",
    "watermark",
)
"""Flags of vLLM that are columns of `engines` under the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLine:
    """What one line of a start tells."""

    begins: bool = False
    """Whether it is among the first lines of a start."""
    is_of_engine: bool = False
    """Whether the engine itself begins, and not the server around it."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Columns of `engines`, and `num_gpu_blocks`, `is_v1`, which become some of them."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Parts of `engines.settings`."""


_Reader: TypeAlias = Callable[[re.Match[str]], StartLine]


def parse(message: str, file: str = "") -> StartLine | None:
    """Returns what a line of a start tells; None where the message is none.

    `file` is vLLM's source file that wrote it: the first versions of V1 began with V0's words.
    """
    for pattern, read in _LINES:
        if match := pattern.search(message):
            line = read(match)
            if line.is_of_engine and file == "core.py":
                line.columns["is_v1"] = True
            return line
    return None


def _config(match: re.Match[str]) -> StartLine:
    config = settings_of(match[3])
    columns = {
        "is_v1": match[1] is not None,
        "version": match[2],
        "model": _served(config),
        "device": config.get("device_config"),
        "max_model_len": config.get("max_seq_len"),
        "enable_prefix_caching": config.get("enable_prefix_caching"),
        "enable_chunked_prefill": config.get(
            "enable_chunked_prefill", config.get("chunked_prefill_enabled")
        ),
        "num_speculative_tokens": _num_drafts(config.get("speculative_config")),
    }
    return StartLine(
        begins=True, is_of_engine=True, columns=_told(columns), settings={"config": public(config)}
    )


def _args(match: re.Match[str]) -> StartLine:
    args = settings_of(match[1])
    transfer = args.get("kv_transfer_config")
    transfer = transfer if isinstance(transfer, dict) else {}
    columns = {
        **{name: args.get(name) for name in _SAME},
        "model": _served(args),
        "num_gpu_blocks": args.get("num_gpu_blocks_override"),
        "policy": args.get("scheduling_policy"),
        "max_loras": args.get("max_loras") if args.get("enable_lora") else None,
        "num_speculative_tokens": _num_drafts(args.get("speculative_config")),
        "kv_connector": transfer.get("kv_connector"),
        "role": _ROLES.get(str(transfer.get("kv_role"))),
    }
    return StartLine(begins=True, columns=_told(columns), settings={"args": public(args)})


def _version(match: re.Match[str]) -> StartLine:
    return StartLine(begins=True, columns={"version": match[1]})


def _kv_size(match: re.Match[str]) -> StartLine:
    settings = {} if match[3] is None else {"max_concurrency": float(match[3])}
    return StartLine(columns={"num_kv_tokens": _int(match[1])}, settings=settings)


def _concurrency(match: re.Match[str]) -> StartLine:
    return StartLine(settings={"max_concurrency": float(match[1])})


def _memory_parts(match: re.Match[str]) -> StartLine:
    return StartLine(
        columns={
            "memory_weights_bytes": round(float(match[1]) * GIB),
            "memory_activation_bytes": round(float(match[2]) * GIB),
            "memory_kv_bytes": round(float(match[3]) * GIB),
        }
    )


def _gib(column: str) -> _Reader:
    def read(match: re.Match[str]) -> StartLine:
        return StartLine(columns={column: round(float(match[1]) * _UNITS[match[2]])})

    return read


def _number(column: str) -> _Reader:
    return lambda match: StartLine(columns={column: _int(match[1])})


def _text(column: str) -> _Reader:
    return lambda match: StartLine(columns={column: match[1]})


_LINES: tuple[tuple[re.Pattern[str], _Reader], ...] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (r"^Initializing an? (V1 )?LLM engine \(v?([\w.+-]+)\) with config: (.*)", _config),
        (r"^non-default args: \{(.*)", _args),
        (r"^args: Namespace\((.*)", _args),
        (r"^vLLM API server version v?([\w.+-]+)", _version),
        (r"^[ ▀▄█]+ version +v?(\d[\w.+-]*)", _version),
        (
            r"^\w+(?: \+ host)? KV cache size: ([\d,]+) tokens"
            r"(?:, Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x)?",
            _kv_size,
        ),
        (r"^Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x", _concurrency),
        (r"^# \w+ blocks: (\d+)", _number("num_gpu_blocks")),
        (r"with num_gpu_blocks_override=(\d+)", _number("num_gpu_blocks")),
        (r"after num_gpu_blocks is: (\d+)", _number("num_gpu_blocks")),
        (
            r"^Chunked prefill is enabled with max_num_batched_tokens=(\d+)",
            _number("max_num_batched_tokens"),
        ),
        (r"^Using max model len (\d+)", _number("max_model_len")),
        (r"^(?:\[XPU\])?Setting attention block size to (\d+) tokens", _number("block_size")),
        (r"^Available KV cache memory: ([\d.]+) (GiB|MiB)", _gib("memory_kv_bytes")),
        (
            r"^(?:Model loading|Loading model weights) took ([\d.]+) (GB|GiB|MiB)",
            _gib("memory_weights_bytes"),
        ),
        (
            r"model weights take ([\d.]+) ?GiB; [^;]{0,80}; "
            r"[^;]{0,40}activation peak memory takes ([\d.]+) ?GiB; "
            r"[^;]{0,60}reserved for KV Cache is ([\d.]+) ?GiB",
            _memory_parts,
        ),
        (r"^Graph capturing finished in .* took ([\d.]+) (GiB|MiB)", _gib("memory_graph_bytes")),
        (
            r"(?:Starting vLLM (?:API )?server(?: \d+)?|Uvicorn running) on (https?://[\w.:\[\]-]+)",
            _text("api_url"),
        ),
        (r"^Creating v1 connector with name: (\w+)", _text("kv_connector")),
        (
            r"^Asynchronous scheduling is (enabled|disabled)",
            lambda match: StartLine(columns={"async_scheduling": match[1] == "enabled"}),
        ),
    )
)


def public(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that say nothing of who, where, or how to get in."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if PRIVATE.search(name):
            continue
        found[name] = public(value) if isinstance(value, dict) else plain(value)
    return found


def _served(settings: dict[str, Any]) -> str | None:
    name = settings.get("served_model_name")
    if isinstance(name, list):
        name = name[0] if name else None
    name = name or settings.get("model")
    return name if isinstance(name, str) else None


def _num_drafts(config: Any) -> int | None:
    if not isinstance(config, dict):
        return None
    number = config.get("num_speculative_tokens", config.get("num_spec_tokens"))
    return number if isinstance(number, int) else None


def _told(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if value is not None}


def _int(text: str) -> int:
    return int(text.replace(",", ""))
