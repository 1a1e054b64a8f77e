"""Changes of a workload. Each returns a new one; nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from diagnose.replay.workload import ClientKind, Clients, Workload, WorkRequest
from engine.config import EngineConfig

_PARTS = {
    "max_num_seqs": "scheduler",
    "max_num_active_seqs": "scheduler",
    "max_num_batched_tokens": "scheduler",
    "max_num_scheduled_tokens": "scheduler",
    "enable_chunked_prefill": "scheduler",
    "long_prefill_token_threshold": "scheduler",
    "max_loras": "scheduler",
    "policy": "scheduler",
    "scheduler_reserve_full_isl": "scheduler",
    "watermark": "scheduler",
    "num_gpu_blocks": "cache",
    "block_size": "cache",
    "enable_prefix_caching": "cache",
    "num_speculative_tokens": "speculation",
}
"""Settings that can be changed, and which part of the configuration they belong to."""


def with_settings(workload: Workload, **settings: Any) -> Workload:
    """Returns the load under other settings, by vLLM's names.

    Another `block_size` keeps the KV memory: the number of blocks follows, unless it is set too.

    Raises:
        ValueError: a setting cannot be changed by a replay; the message lists those that can.
        ConfigError: a value is not possible; the message says why.
    """
    return replace(workload, config=changed_config(workload.config, settings))


def changed_config(config: EngineConfig, settings: dict[str, Any]) -> EngineConfig:
    """Returns a configuration with other settings; raises as `with_settings` does."""
    unknown = sorted(settings.keys() - _PARTS.keys())
    if unknown:
        names = ", ".join(sorted(_PARTS))
        raise ValueError(f"{', '.join(unknown)} cannot be changed in a replay: choose {names}")
    wanted = dict(settings)
    if "block_size" in wanted and "num_gpu_blocks" not in wanted:
        size = int(wanted["block_size"])
        cache = config.cache
        if size >= 1:
            wanted["num_gpu_blocks"] = cache.num_usable_blocks * cache.block_size // size + 1
    parts: dict[str, dict[str, Any]] = {}
    for name, value in wanted.items():
        parts.setdefault(_PARTS[name], {})[name] = value
    changed = {part: replace(getattr(config, part), **values) for part, values in parts.items()}
    return replace(config, **changed)


def without(workload: Workload, predicate: Callable[[WorkRequest], bool]) -> Workload:
    """Returns the load without the requests of which the predicate is true."""
    kept = tuple(request for request in workload.requests if not predicate(request))
    return replace(workload, requests=kept)


def with_requests(workload: Workload, requests: Iterable[WorkRequest]) -> Workload:
    """Returns the load with these requests instead; they are put in the order of their arrival."""
    ordered = sorted(
        requests, key=lambda each: (each.arrived_ns >= 0, not each.was_running, each.arrived_ns)
    )
    return replace(workload, requests=tuple(ordered))


def with_clients(
    workload: Workload, kind: ClientKind, num_in_flight: int | None = None
) -> Workload:
    """Returns the load with clients that behave otherwise than was detected.

    Raises:
        ValueError: a closed loop of no clients, or of a number that nobody said or detected.
    """
    if kind == "open":
        return replace(workload, clients=Clients(kind="open"))
    found = workload.clients
    number = num_in_flight if num_in_flight is not None else found.num_in_flight
    if number is None or number < 1:
        raise ValueError(
            f"a closed loop has 1 client or more, and {number} were given: say how many (closed:8)"
        )
    return replace(
        workload, clients=Clients(kind="closed", num_in_flight=number, think_ns=found.think_ns)
    )


def scaled(workload: Workload, rate: float) -> Workload:
    """Returns the load with requests that come `rate` times as fast.

    Raises:
        ValueError: the rate is not above 0.
    """
    if not rate > 0:
        raise ValueError(f"rate is {rate}: it is a factor above 0 (1 is as recorded)")
    return replace(workload, rate_factor=workload.rate_factor * rate)


def with_connector_latency(workload: Workload, factor: float) -> Workload:
    """Returns the load with a KV connector that takes `factor` times as long.

    Raises:
        ValueError: the factor is below 0, or there is no connector.
    """
    if workload.config.kv_connector is None:
        raise ValueError("connector latency cannot be changed: this engine has no KV connector")
    if not factor >= 0:
        raise ValueError(f"connector latency is {factor}: it is a factor, 0 or more (1: as it was)")
    return replace(workload, latency_factor=workload.latency_factor * factor)
