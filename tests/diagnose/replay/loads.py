"""Loads of a simulated engine, recorded, for replays under other settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.traffic import Call, about, poisson
from diagnose.replay import Workload, read_workload
from engine.config import EngineConfig
from tests.engine.builders import config


def settings(**changed: Any) -> EngineConfig:
    """A pool that holds seven of the storm's requests to their end."""
    known: dict[str, Any] = {"num_usable_blocks": 120, "block_size": 16, "max_num_seqs": 32}
    return config(**{**known, **changed})


def storm(random: Random, *, rate: float = 4.0, seconds: float = 30.0) -> list[Call]:
    """Requests that come faster than a small pool can serve them."""

    def make(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 96), max_tokens=about(random, 160))

    return poisson(random, make, rate=rate, start=0.5, end=seconds)


def recording(
    config: EngineConfig,
    calls: Sequence[Call],
    *,
    seed: int = 1,
    until: float | None = None,
    **how: Any,
) -> Recording:
    """A recorded run of these requests, to their end or for so many seconds."""
    engine = Recording(config, Random(seed), **how)
    engine.send(calls)
    engine.run(until)
    return engine


def closed_loop(
    config: EngineConfig, make: Callable[[int], Call], *, clients: int, count: int, seed: int = 1
) -> Recording:
    """A recorded run of clients that ask again when they have their answers."""
    left = iter(range(clients, count))

    def ask_again(engine: Recording, number: int) -> Call | None:
        return next((make(index) for index in left), None)

    engine = Recording(config, Random(seed), on_end=ask_again)
    engine.send(make(index) for index in range(clients))
    engine.run()
    return engine


def workload_of(engine: Recording, **window: int) -> Workload:
    """What a replay of the run is made of."""
    return read_workload(log_of(engine), engine.engine, **window)
