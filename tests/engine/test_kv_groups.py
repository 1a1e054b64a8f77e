"""KV groups: full attention and sliding windows over one pool."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import CacheConfig, ConfigError, KVGroupConfig
from telemetry.records import RequestAdmitted
from tests.engine.builders import Run, config

FULL = KVGroupConfig("full", 4)


def run_with(*groups: KVGroupConfig, num_usable_blocks: int = 60, **fields: object) -> Run:
    settings_ = config(num_usable_blocks=num_usable_blocks, **fields)
    block_size = max(group.block_size for group in groups)
    cache = replace(settings_.cache, groups=groups, block_size=block_size)
    return Run(replace(settings_, cache=cache))


def window(tokens: int, block_size: int = 4) -> KVGroupConfig:
    return KVGroupConfig("sliding_window", block_size, tokens)


def test_every_group_needs_blocks_of_its_own() -> None:
    run = run_with(FULL, window(100))
    run.add("a", prompt=8)
    output = run.step()
    assert [len(blocks) for blocks in output.scheduled_new_reqs[0].block_ids] == [2, 2]
    assert run.scheduler.kv.pool.num_free == 56


def test_a_window_gives_back_what_it_has_passed() -> None:
    run = run_with(FULL, window(5))
    request = run.add("a", prompt=16, max_tokens=8)
    run.steps(2)
    full, windowed = run.scheduler.kv.block_ids(request)
    assert 0 not in full
    assert windowed[:3] == [0, 0, 0]
    assert 0 not in windowed[3:]


def test_a_hit_needs_only_the_end_of_a_window() -> None:
    run = run_with(FULL, window(5))
    prompt = list(range(16))
    run.add("a", prompt=prompt, max_tokens=6)
    run.to_the_end()
    request = run.add("b", prompt=[*prompt, 99])
    assert run.step().num_prefix_hit_tokens == {"b": 16}
    _, windowed = run.scheduler.kv.block_ids(request)
    assert windowed[:3] == [0, 0, 0]


def test_what_full_attention_had_alone_is_recorded_beside_the_hit() -> None:
    run = run_with(FULL, window(5), num_usable_blocks=20)
    prompt = list(range(16))
    run.add("a", prompt=[*prompt, *range(100, 116)], max_tokens=2)
    run.to_the_end()
    run.add("others", prompt=20, max_tokens=1)
    run.to_the_end()
    run.add("b", prompt=[*prompt, 99], max_tokens=1)
    run.step()
    admitted = run.events(RequestAdmitted)[-1]
    assert isinstance(admitted, RequestAdmitted)
    assert (admitted.num_hit_tokens, admitted.num_hit_tokens_full_group) == (4, 16)


def test_with_one_group_there_is_no_hit_of_a_full_one() -> None:
    run = run_with(FULL)
    run.add("a")
    run.step()
    admitted = run.events(RequestAdmitted)[-1]
    assert isinstance(admitted, RequestAdmitted)
    assert admitted.num_hit_tokens_full_group is None


def test_groups_of_different_block_sizes_agree_on_a_multiple_of_both() -> None:
    run = run_with(KVGroupConfig("full", 8), window(9, block_size=4))
    prompt = list(range(20))
    run.add("a", prompt=prompt, max_tokens=1)
    run.to_the_end()
    run.add("b", prompt=[*prompt, 99])
    assert run.step().num_prefix_hit_tokens == {"b": 16}


def test_a_long_prompt_is_admitted_where_its_window_fits() -> None:
    run = run_with(window(5), num_usable_blocks=8, max_num_batched_tokens=8)
    run.add("a", prompt=60, max_tokens=2)
    run.to_the_end()
    assert run.results[-1].finish_reason is not None


def test_a_block_size_that_is_no_common_multiple_is_refused() -> None:
    with pytest.raises(ConfigError, match="it has to be 16"):
        CacheConfig(block_size=8, groups=(KVGroupConfig("full", 16), window(9, 8)))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(FULL, window(5)), (window(9),), (KVGroupConfig("full", 8), window(6))]),
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8)), min_size=1, max_size=8),
    st.integers(30, 60),
)
def test_all_blocks_come_back(
    groups: tuple[KVGroupConfig, ...], requests: list[tuple[int, int]], num_blocks: int
) -> None:
    run = run_with(*groups, num_usable_blocks=num_blocks, max_num_batched_tokens=16)
    for number, (prompt, max_tokens) in enumerate(requests):
        run.add(f"r{number}", prompt=range(prompt), max_tokens=max_tokens)
    run.to_the_end()
    assert run.scheduler.kv.pool.num_free == num_blocks
    assert len({r.request_id for r in run.results if r.finish_reason}) == len(requests)


def test_a_block_that_is_known_in_part_stays_so_when_its_request_is_evicted() -> None:
    settings_ = run_with(FULL, KVGroupConfig("full", 8)).config
    drops = replace(settings_.speculation, num_speculative_tokens=1, drop_last_hit_block=True)
    run = Run(replace(settings_, speculation=drops))
    request = run.add("a", prompt=12)
    run.step()
    block = run.scheduler.kv.block_ids(request)[1][1]
    run.scheduler.kv.release(request, uncache_from=request.num_computed_tokens)
    assert run.scheduler.kv.pool.is_cached(block)
