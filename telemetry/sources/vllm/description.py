"""What the record is told about a vLLM engine: its settings, and what is recorded of it.

Read once, from the scheduler that was just made. Each value is read by itself: what one version
keeps elsewhere is NULL, and the rest stands.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from telemetry.records import EngineRow
from telemetry.ring.header import boot_id
from telemetry.sources.vllm.compatibility import Compatibility
from telemetry.sources.vllm.settings import plugin_state, settings_json

ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}
"""What a KV connector's role makes of an engine; any other, or none, is both."""


def engine_row(scheduler: Any, compatibility: Compatibility, *, started_ts: int) -> EngineRow:
    """Returns the row of the engine whose scheduler this is."""
    config = _Reading(scheduler.vllm_config)
    schedule = config.part("scheduler_config")
    cache = config.part("cache_config")
    connector = config.part("kv_transfer_config")
    made = _Reading(scheduler)
    memory = _Memory(made)
    return EngineRow(
        started_ts=started_ts,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        dp_rank=config.part("parallel_config").count("data_parallel_index"),
        role=ROLES.get(connector.text("kv_role") or "", "both"),
        source="vllm",
        version=compatibility.version,
        model=_served_name(config.part("model_config")),
        device=config.part("device_config").text("device_type"),
        settings=settings_json(scheduler, compatibility),
        policy=schedule.text("policy"),
        max_num_seqs=schedule.count("max_num_seqs"),
        max_num_active_seqs=made.count("max_num_active_reqs"),
        max_num_batched_tokens=schedule.count("max_num_batched_tokens"),
        max_num_scheduled_tokens=made.count("max_num_scheduled_tokens"),
        max_model_len=config.part("model_config").count("max_model_len"),
        block_size=made.count("block_size"),
        num_usable_blocks=memory.num_usable_blocks,
        has_null_block=memory.has_null_block,
        num_kv_tokens=memory.num_kv_tokens(cache.count("kv_cache_size_tokens")),
        kv_block_bytes=memory.kv_block_bytes,
        enable_prefix_caching=cache.flag("enable_prefix_caching"),
        enable_chunked_prefill=schedule.flag("enable_chunked_prefill"),
        long_prefill_token_threshold=schedule.count("long_prefill_token_threshold"),
        reserve_full_prompt=schedule.flag("scheduler_reserve_full_isl"),
        watermark=schedule.number("watermark"),
        gpu_memory_utilization=cache.number("gpu_memory_utilization"),
        async_scheduling=schedule.flag("async_scheduling"),
        max_loras=config.part("lora_config").count("max_loras"),
        num_speculative_tokens=config.count("num_speculative_tokens") or None,
        kv_connector=connector.text("kv_connector"),
        memory_kv_bytes=memory.kv_bytes,
        host_cpu_count=os.cpu_count(),
    )


def bare_row(compatibility: Compatibility, *, started_ts: int) -> EngineRow:
    """Returns what can be said of an engine whose settings cannot be read."""
    return EngineRow(
        started_ts=started_ts,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        source="vllm",
        version=compatibility.version,
        settings=json.dumps({"stepscope": plugin_state(compatibility)}),
    )


def _served_name(model: _Reading) -> str | None:
    served = model.value("served_model_name")
    if isinstance(served, list | tuple):
        served = served[0] if served else None
    return str(served) if served else model.text("model")


class _Reading:
    """Reads values of an object of vLLM's by name; None where they are absent or no such thing."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def value(self, name: str) -> Any:
        return getattr(self._source, name, None)

    def part(self, name: str) -> _Reading:
        return _Reading(self.value(name))

    def count(self, name: str) -> int | None:
        found = self.value(name)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def number(self, name: str) -> float | None:
        found = self.value(name)
        return float(found) if isinstance(found, int | float) else None

    def flag(self, name: str) -> bool | None:
        found = self.value(name)
        return found if isinstance(found, bool) else None

    def text(self, name: str) -> str | None:
        found = self.value(name)
        return found if isinstance(found, str) else None


class _Memory:
    """The KV pool of a scheduler: its blocks, and the memory that they lie in."""

    def __init__(self, scheduler: _Reading) -> None:
        pool = scheduler.part("kv_cache_manager").part("block_pool")
        layout = scheduler.part("kv_cache_config")
        self._block_size = scheduler.count("block_size")
        self._num_blocks = pool.count("num_gpu_blocks") or layout.count("num_blocks")
        self._groups = layout.value("kv_cache_groups") or ()
        self.has_null_block = pool.value("null_block") is not None
        self.kv_bytes = _allocation_bytes(layout.value("kv_cache_tensors") or ())

    @property
    def num_usable_blocks(self) -> int | None:
        """Blocks that can be handed out."""
        return None if self._num_blocks is None else self._num_blocks - self.has_null_block

    @property
    def kv_block_bytes(self) -> int | None:
        """Memory of one block over all layers of one worker."""
        if self.kv_bytes is None or not self._num_blocks:
            return None
        return self.kv_bytes // self._num_blocks

    def num_kv_tokens(self, by_vllm: int | None) -> int | None:
        """Returns the tokens that the pool holds.

        With several groups a token takes a block of each, some only for a while: then it is what
        vLLM says.
        """
        if len(self._groups) != 1:
            return by_vllm
        if self.num_usable_blocks is None or self._block_size is None:
            return None
        return self.num_usable_blocks * self._block_size


def _allocation_bytes(tensors: Any) -> int | None:
    """Returns the size of the allocation that all tensors of a pool share; None if they do not."""
    sizes = {
        tensor.size
        for tensor in tensors
        if hasattr(tensor, "block_stride") and not getattr(tensor, "host_resident", False)
    }
    return sizes.pop() if len(sizes) == 1 else None
