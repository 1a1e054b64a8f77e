"""Plays a crowded run and prints a digest of all that was decided and recorded.

`python -m tests.engine.play.digest`, for who wants to compare interpreters.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from engine.config import (
    CacheConfig,
    EncoderConfig,
    EngineConfig,
    KVConnectorConfig,
    SchedulerConfig,
    SpeculationConfig,
)
from engine.encoder_cache import EncoderItem
from tests.engine.play.player import Player
from tests.engine.play.rows import rows_of
from tests.engine.play.scenario import Disturbance, RequestPlan, Scenario, Transfer


def crowded() -> Scenario:
    """Returns a run in which whole sets of requests load, send, fail, and are evicted at once."""
    plans = [
        RequestPlan(
            arrives=number // 4,
            num_shared=6,
            num_own=4 + number % 3,
            max_tokens=8,
            priority=number % 2,
            adapter=("x", "y", None)[number % 3],
            grammar=(2, number % 4 == 1) if number % 4 in (1, 2) else None,
            items=(EncoderItem(f"i{number % 3}", 1, 3),) if number % 2 else (),
            drafts=((2, 1), (1, 0)),
            transfer=Transfer(
                num_tokens=8,
                is_async=number % 3 != 0,
                load_steps=2,
                fails_at=-1 if number == 5 else None,
                send_steps=1,
            ),
        )
        for number in range(12)
    ]
    plans[7] = replace(plans[7], pieces=((3, 2, 2),), grammar=None)
    config = EngineConfig(
        kv_connector=KVConnectorConfig(),
        encoder=EncoderConfig(compute_budget=6, cache_size=12),
        speculation=SpeculationConfig(num_speculative_tokens=2),
        scheduler=SchedulerConfig(
            policy="priority",
            max_num_seqs=8,
            max_num_batched_tokens=32,
            max_model_len=32,
            max_loras=2,
        ),
        cache=CacheConfig(block_size=2, num_gpu_blocks=50),
    )
    steps = [Disturbance(9, True, "abort", 3), Disturbance(12, False, "reset_running", 0)]
    return Scenario(config, tuple(plans), tuple(steps))


def digest() -> str:
    """Returns a digest of the run's trace and rows."""
    play = Player(crowded(), array_path=False).run()
    told = repr(play.trace) + repr(rows_of(play))
    return f"{hashlib.sha256(told.encode()).hexdigest()} {play.scheduler.num_preemptions}"


if __name__ == "__main__":
    print(digest())
