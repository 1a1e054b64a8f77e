"""How hypothesis draws a scenario: settings with some features, requests that fit them."""

from __future__ import annotations

from math import lcm
from typing import Any

from hypothesis import strategies as st

from engine.config import (
    CacheConfig,
    EncoderConfig,
    EngineConfig,
    KVConnectorConfig,
    KVGroupConfig,
    SchedulerConfig,
    SpeculationConfig,
)
from engine.encoder_cache import EncoderItem
from tests.engine.play.scenario import HORIZON, Disturbance, RequestPlan, Scenario, Transfer

DISTURBANCES = (
    "abort",
    "reset_running",
    "pause_new",
    "pause_all",
    "unpause",
    "throttle",
    "reset_prefix_cache",
    "reset_encoder_cache",
    "jump",
)
FEATURES = (
    "speculation",
    "async_scheduling",
    "kv_groups",
    "encoder",
    "connector",
    "adapters",
    "threshold",
    "unchunked",
    "no_prefix_cache",
    "first_chunk_only",
    "watermark",
    "sessions",
    "grammars",
    "pipeline",
    "alignment",
)
FEATURES_OF_ROWS = tuple(
    name for name in FEATURES if name not in ("speculation", "pipeline", "kv_groups")
)
"""What the array path has to do with; with the others every request goes the plain one."""


@st.composite
def scenarios(draw: st.DrawFn, features: tuple[str, ...] = FEATURES) -> Scenario:
    """Draws a run with some of the features.

    Every request fits into the pool, the budgets and the encoder alone, so that it can end.
    """
    chosen = draw(st.sets(st.sampled_from(features), max_size=6))
    config = draw(_configs(chosen))
    lengths = draw(_item_lengths(config)) if config.encoder is not None else ()
    requests = draw(st.lists(_requests(config, chosen, lengths), min_size=1, max_size=9))
    disturbances = draw(st.lists(_DISTURBANCE, max_size=8))
    return Scenario(config, tuple(requests), tuple(disturbances))


_DISTURBANCE = st.builds(
    Disturbance,
    st.integers(0, HORIZON),
    st.booleans(),
    st.sampled_from(DISTURBANCES),
    st.integers(0, 8),
)

# ------------------------------------------------------------------------------------- settings


@st.composite
def _configs(draw: st.DrawFn, chosen: set[str]) -> EngineConfig:
    max_model_len = draw(st.integers(8, 40))
    speculation = draw(_SPECULATION) if "speculation" in chosen else SpeculationConfig()
    groups = draw(_GROUPS) if "kv_groups" in chosen else ()
    block_size = lcm(*(g.block_size for g in groups)) if groups else draw(st.integers(1, 5))
    scheduler = draw(_scheduler_settings(chosen, max_model_len, speculation))
    sizes = [group.block_size for group in groups] or [block_size]
    extra = 1 + speculation.num_speculative_tokens + speculation.num_lookahead_tokens
    least = sum(-(-max_model_len // size) - (-extra // size) for size in sizes)
    slack = draw(st.integers(0, 2 * least))
    # Where encoder items cut a chunk, nothing aligned may be left of it for ever.
    is_aligned = "alignment" in chosen and "encoder" not in chosen
    largest = scheduler["long_prefill_token_threshold"] or scheduler["max_num_batched_tokens"]
    largest = min(largest, scheduler["max_num_scheduled_tokens"])
    most = largest // block_size if is_aligned else 0
    watermark = draw(st.sampled_from([0.05, 0.2])) if "watermark" in chosen else 0.0
    return EngineConfig(
        kv_connector=draw(_CONNECTOR) if "connector" in chosen else None,
        encoder=draw(_ENCODER) if "encoder" in chosen else None,
        speculation=speculation,
        scheduler=SchedulerConfig(watermark=watermark, **scheduler),
        cache=CacheConfig(
            block_size=block_size,
            groups=groups,
            num_gpu_blocks=1 + least + slack,
            enable_prefix_caching="no_prefix_cache" not in chosen,
            chunk_alignment=block_size * draw(st.integers(1, most)) if most else None,
        ),
    )


@st.composite
def _scheduler_settings(
    draw: st.DrawFn, chosen: set[str], max_model_len: int, speculation: SpeculationConfig
) -> dict[str, Any]:
    max_num_seqs = draw(st.integers(1, 6))
    padded = 1 + speculation.num_speculative_tokens
    least = max_model_len if "unchunked" in chosen else padded
    slots = speculation.draft_slots_per_request
    budget = draw(st.integers(least, least + 24))
    threshold = draw(st.integers(1, 12)) if "threshold" in chosen else 0
    return {
        "policy": draw(st.sampled_from(["fcfs", "priority"])),
        "max_num_seqs": max_num_seqs,
        "max_num_active_seqs": draw(st.none() | st.integers(1, max_num_seqs)),
        "max_num_batched_tokens": budget + slots,
        "max_num_scheduled_tokens": draw(st.integers(least, budget)),
        "max_model_len": max_model_len,
        "enable_chunked_prefill": "unchunked" not in chosen,
        "long_prefill_token_threshold": threshold,
        "long_prefill_token_threshold_adaptive": bool(threshold) and draw(st.booleans()),
        "max_loras": draw(st.integers(1, 2)) if "adapters" in chosen else None,
        "async_scheduling": "async_scheduling" in chosen,
        "pp_size": draw(st.integers(2, 3)) if "pipeline" in chosen else 1,
        "scheduler_reserve_full_isl": "first_chunk_only" not in chosen,
    }


_SPECULATION = st.builds(
    SpeculationConfig,
    num_speculative_tokens=st.integers(1, 3),
    num_lookahead_tokens=st.integers(0, 3),
    prefill_lookahead=st.integers(0, 1),
    drop_last_hit_block=st.booleans(),
    draft_slots_per_request=st.sampled_from([0, 0, 1, 2]),
)
_ENCODER = st.builds(
    EncoderConfig,
    compute_budget=st.integers(4, 10),
    cache_size=st.integers(12, 24),
    disable_chunked_mm_input=st.booleans(),
)
_CONNECTOR = st.builds(
    KVConnectorConfig,
    role=st.sampled_from(["kv_producer", "kv_consumer", "kv_both"]),
    load_failure_policy=st.sampled_from(["recompute", "fail"]),
)


def _window(tokens: int, block_size: int) -> KVGroupConfig:
    return KVGroupConfig("sliding_window", block_size, tokens)


_GROUPS = st.sampled_from(
    [
        (KVGroupConfig("full", 2), _window(5, 2)),
        (_window(6, 3),),
        (KVGroupConfig("full", 4), _window(4, 2)),
        (KVGroupConfig("full", 2), _window(9, 4)),
        (_window(3, 2), KVGroupConfig("full", 2), _window(7, 2)),
    ]
)

# -------------------------------------------------------------------------------------- requests


@st.composite
def _requests(
    draw: st.DrawFn, config: EngineConfig, chosen: set[str], lengths: tuple[int, ...]
) -> RequestPlan:
    limit = config.scheduler.max_model_len
    num_prompt = draw(st.integers(1, limit - 2))
    num_shared = draw(st.integers(0, num_prompt))
    max_tokens = draw(st.integers(1, min(20, limit - num_prompt)))
    fields: dict[str, Any] = {}
    if "adapters" in chosen:
        fields["adapter"] = draw(st.sampled_from([None, "x", "y", "z"]))
    if "grammars" in chosen and draw(st.booleans()):
        fields["grammar"] = draw(st.tuples(st.integers(0, 6), st.booleans()))
    if "sessions" in chosen and draw(st.booleans()):
        fields["pieces"] = draw(_pieces(limit - num_prompt - max_tokens))
    if lengths:
        fields["items"] = draw(_items(num_prompt, lengths))
    if config.speculation.num_speculative_tokens:
        fields["drafts"] = draw(_drafts(config.speculation.num_speculative_tokens))
    if config.kv_connector is not None:
        fields["transfer"] = draw(_transfers(config, num_prompt))
    return RequestPlan(
        arrives=draw(st.integers(0, 12)),
        num_shared=num_shared,
        num_own=num_prompt - num_shared,
        max_tokens=max_tokens,
        priority=draw(st.integers(0, 2)),
        arrival_time=float(draw(st.integers(0, 3))),
        eos_at=draw(st.none() | st.integers(0, 9)),
        stops_at=draw(st.none() | st.integers(0, 9)),
        min_tokens=draw(st.integers(0, max_tokens)),
        ignore_eos=draw(st.booleans()),
        salt=draw(st.sampled_from([None, None, "s"])),
        reads_cache=draw(st.sampled_from([True, True, False])),
        **fields,
    )


@st.composite
def _pieces(draw: st.DrawFn, room: int) -> tuple[tuple[int, int, int], ...]:
    pieces, after = [], 0
    for _ in range(draw(st.integers(0, 2))):
        if room < 3:
            break
        after += draw(st.integers(0, 5))
        num_tokens = draw(st.integers(1, min(8, room - 2)))
        max_tokens = draw(st.integers(1, min(4, room - num_tokens)))
        pieces.append((after, num_tokens, max_tokens))
        room -= num_tokens + max_tokens
    return tuple(pieces)


@st.composite
def _item_lengths(draw: st.DrawFn, config: EngineConfig) -> tuple[int, ...]:
    """Draws the lengths of the items `i0`, `i1`, ...; an item that is not split fits a chunk."""
    assert config.encoder is not None
    longest = min(4, config.encoder.compute_budget)
    if config.encoder.disable_chunked_mm_input:
        limits = config.scheduler
        chunk = limits.scheduled_tokens
        if limits.long_prefill_token_threshold:
            chunk = min(chunk, limits.long_prefill_token_threshold)
        longest = min(longest, chunk - config.speculation.prefill_lookahead)
    if longest < 1:
        return ()
    return draw(st.tuples(*[st.integers(1, longest)] * 3))


@st.composite
def _items(draw: st.DrawFn, num_prompt: int, lengths: tuple[int, ...]) -> tuple[EncoderItem, ...]:
    items, position = [], 0
    for which, gap, is_odd in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 9)), max_size=3)
    ):
        length = lengths[which]
        if is_odd == 9 and length > 1:
            length -= 1
        if position + gap + length > num_prompt:
            break
        items.append(EncoderItem(f"i{which}", position + gap, length))
        position += gap + length
    return tuple(items)


@st.composite
def _drafts(draw: st.DrawFn, most: int) -> tuple[tuple[int, int], ...]:
    counts = st.integers(0, most).flatmap(
        lambda count: st.tuples(st.just(count), st.integers(0, count))
    )
    return tuple(draw(st.lists(counts, min_size=1, max_size=3)))


@st.composite
def _transfers(draw: st.DrawFn, config: EngineConfig, num_prompt: int) -> Transfer:
    num_tokens = draw(st.integers(0, num_prompt))
    num_blocks = -(-num_tokens // config.cache.block_size)
    is_async = draw(st.booleans())
    # The original loses count of a request whose load fails under a step in flight.
    may_fail = is_async or config.scheduler.max_concurrent_batches == 1
    return Transfer(
        num_tokens=num_tokens,
        is_async=is_async,
        num_unknown=draw(st.sampled_from([0, 0, 1, 3])),
        load_steps=draw(st.integers(0, 4)),
        fails_at=draw(st.none() | st.integers(-1, num_blocks)) if may_fail else None,
        send_steps=draw(st.none() | st.integers(0, 4)),
    )
