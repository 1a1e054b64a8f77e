"""What the record is told about an engine: its settings, its machine, its life."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.config import EngineConfig
from telemetry.recorder import Recorder
from telemetry.records import EngineRow, Event
from telemetry.vocabulary import EventKind

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Where the device's memory went, in bytes; None where nobody measured."""

    total_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    graph_bytes: int | None = None
    kv_bytes: int | None = None
    kv_block_bytes: int | None = None


def introduce(
    *, started_ts: int, model: str, version: str | None, api_url: str | None = None
) -> EngineRow:
    """Returns the engine's row as far as it is known before the model is loaded.

    Args:
        api_url: where its API listens; None for an engine without one.
    """
    return EngineRow(
        started_ts=started_ts,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=_boot_id(),
        dp_rank=0,
        role="both",
        source="stepscope",
        version=version,
        model=model,
        api_url=api_url,
        host_cpu_count=os.cpu_count(),
    )


def describe(
    row: EngineRow,
    config: EngineConfig,
    *,
    device: str,
    memory: DeviceMemory,
) -> EngineRow:
    """Returns the row with every setting that the loaded engine has."""
    scheduler, cache = config.scheduler, config.cache
    return replace(
        row,
        device=device,
        settings=config.to_json(),
        policy=scheduler.policy,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_active_seqs=scheduler.active_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_num_scheduled_tokens=scheduler.scheduled_tokens,
        max_model_len=scheduler.max_model_len,
        block_size=cache.block_size,
        num_usable_blocks=cache.num_usable_blocks,
        has_null_block=True,
        num_kv_tokens=cache.num_kv_tokens,
        kv_block_bytes=memory.kv_block_bytes,
        enable_prefix_caching=cache.enable_prefix_caching,
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        reserve_full_prompt=scheduler.scheduler_reserve_full_isl,
        watermark=scheduler.watermark,
        gpu_memory_utilization=cache.gpu_memory_utilization,
        async_scheduling=scheduler.async_scheduling,
        num_speculative_tokens=config.speculation.num_speculative_tokens or None,
        kv_connector=_connector_name(config),
        max_loras=scheduler.max_loras,
        memory_total_bytes=memory.total_bytes,
        memory_weights_bytes=memory.weights_bytes,
        memory_activation_bytes=memory.activation_bytes,
        memory_graph_bytes=memory.graph_bytes,
        memory_kv_bytes=memory.kv_bytes,
    )


class LifeEvents:
    """Tells the record how the engine itself fares, from its first breath to its last."""

    def __init__(self, recorder: Recorder, clock: Callable[[], int]) -> None:
        self._recorder = recorder
        self._clock = clock

    def starting(self, phase: str) -> None:
        """The engine is on its way: what it does now."""
        self._tell(EventKind.engine_starting, phase)

    def started(self) -> None:
        """The engine takes requests."""
        self._tell(EventKind.engine_started, None)

    def failed(self, error: str, *, step: int = 0) -> None:
        """The engine cannot go on."""
        self._tell(EventKind.engine_failed, error, step)

    def stopped(self, why: str, *, step: int) -> None:
        """The engine was asked to end, and has."""
        self._tell(EventKind.engine_stopped, why, step)

    def _tell(self, kind: EventKind, text: str | None, step: int = 0) -> None:
        self._recorder.record_events([Event(kind=kind, step=step, ts=self._clock(), text=text)])


def _connector_name(config: EngineConfig) -> str | None:
    """Returns the connector's name, or its role where it has none."""
    connector = config.kv_connector
    return None if connector is None else connector.connector or connector.role


def _boot_id() -> str | None:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None
