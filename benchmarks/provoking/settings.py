"""Settings of an engine to provoke, from a flat list of names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from engine.config import CacheConfig, EngineConfig, SchedulerConfig

_CACHE = {field.name for field in fields(CacheConfig)}
_SCHEDULER = {field.name for field in fields(SchedulerConfig)}


def settings(*, num_blocks: int = 512, **named: Any) -> EngineConfig:
    """Returns the settings of an engine whose pool has `num_blocks` blocks to hand out.

    Args:
        named: settings of the cache, the scheduler or the engine itself.
    """
    cache = {name: named.pop(name) for name in list(named) if name in _CACHE}
    scheduler = {name: named.pop(name) for name in list(named) if name in _SCHEDULER}
    return EngineConfig(
        cache=CacheConfig(num_gpu_blocks=num_blocks + 1, **cache),
        scheduler=SchedulerConfig(**({"max_num_seqs": 64} | scheduler)),
        **named,
    )
