"""The check of a scheduler's books: what it counts, and that it notices what is broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from engine.config import CacheConfig, EncoderConfig, EngineConfig, KVGroupConfig, SchedulerConfig
from engine.encoder_cache import EncoderItem
from engine.request import RequestStatus
from engine.scheduler import Scheduler
from tests.engine.builders import Run, config

Corruption = Callable[[Scheduler], object]


def busy_run() -> Run:
    """Two running requests that share two cached blocks, one waiting, cached blocks left behind."""
    run = Run(config(num_usable_blocks=20, max_num_seqs=2))
    run.add("gone", prompt=range(100, 109), max_tokens=1)
    run.step()
    for name in ("a", "b"):
        run.add(name, prompt=range(10), max_tokens=50)
        run.step()
    run.add("c", prompt=range(50, 60), max_tokens=50)
    run.step()
    return run


def test_every_block_is_counted_in_one_place() -> None:
    scheduler = busy_run().scheduler
    report = scheduler.examine(deep=True)
    assert report.is_healthy
    kv = report.kv
    assert kv.num_free_cached_blocks == 2
    assert report.num_running_blocks == 4
    assert (report.num_waiting_blocks, report.num_kept_blocks) == (0, 0)
    free = kv.num_free_unhashed_blocks + kv.num_free_cached_blocks
    assert free + report.num_running_blocks == kv.num_usable_blocks == 20
    assert (report.num_running, report.num_waiting) == (2, 1)


def test_a_shared_block_is_one_block_and_two_references() -> None:
    kv = busy_run().scheduler.examine().kv
    assert kv.num_references == kv.num_table_entries == 6


def test_the_plain_check_works_no_keys_out() -> None:
    scheduler = busy_run().scheduler
    assert scheduler.examine().kv.num_blocks_rehashed is None
    kv = scheduler.examine(deep=True).kv
    assert kv.num_blocks_rehashed == kv.num_cached_blocks - kv.num_free_cached_blocks > 0


def held_block(scheduler: Scheduler) -> int:
    return scheduler.kv.block_ids(scheduler.running[0])[0][0]


def add_a_reference(scheduler: Scheduler) -> None:
    scheduler.kv.pool._references[held_block(scheduler)] += 1


def lose_a_free_block(scheduler: Scheduler) -> None:
    scheduler.kv.pool.allocate(1)


def miscount_free_blocks(scheduler: Scheduler) -> None:
    scheduler.kv.pool.num_free -= 1


def tie_the_free_list_to_a_loop(scheduler: Scheduler) -> None:
    pool = scheduler.kv.pool
    pool._next[pool._next[0]] = pool._next[0]


def lose_an_index_entry(scheduler: Scheduler) -> None:
    scheduler.kv.pool._index._oldest.popitem()


def forget_a_key(scheduler: Scheduler) -> None:
    scheduler.kv.pool._keys[held_block(scheduler)] = None


def point_beyond_the_pool(scheduler: Scheduler) -> None:
    scheduler.kv._groups[0].tables[scheduler.running[0].number].blocks[0] = 999


def drop_a_running_request(scheduler: Scheduler) -> None:
    scheduler.running.pop()


def end_a_running_request(scheduler: Scheduler) -> None:
    scheduler.running[0].status = RequestStatus.FINISHED


def let_a_stranger_hold_blocks(scheduler: Scheduler) -> None:
    gone = scheduler.running.pop()
    del scheduler.requests[gone.request_id]


def compute_too_much(scheduler: Scheduler) -> None:
    waiting = scheduler.waiting.peek()
    assert waiting is not None
    waiting.num_computed_tokens = waiting.num_tokens + 1


def set_a_running_one_aside(scheduler: Scheduler) -> None:
    scheduler.skipped.add(scheduler.running[0])


@pytest.mark.parametrize(
    ("corrupt", "says"),
    [
        (add_a_reference, r"block 3: wrong reference count: 3 references, 2 entries"),
        (lose_a_free_block, r"free \+ used is not the pool: 15 free \+ 4 in block tables, 20"),
        (miscount_free_blocks, r"free list and counter differ: 16 blocks are linked"),
        (tie_the_free_list_to_a_loop, r"free list and counter differ: 21 blocks are linked, 1 "),
        (lose_an_index_entry, r"lost from the index"),
        (forget_a_key, r"the index holds a block without a key"),
        (point_beyond_the_pool, r"block 999, which the pool does not have"),
        (drop_a_running_request, r"a request is lost or twice: 3 are known, 2 run or wait"),
        (end_a_running_request, r"request 1 runs and is FINISHED"),
        (let_a_stranger_hold_blocks, r"1 blocks are held by requests that nobody knows"),
        (compute_too_much, r"computed without KV: request 3 .*; computed beyond known: request 3"),
        (set_a_running_one_aside, r"1 requests count as set aside and do not wait"),
    ],
)
def test_what_is_broken_is_told(corrupt: Corruption, says: str) -> None:
    scheduler = busy_run().scheduler
    scheduler.settle()
    corrupt(scheduler)
    with pytest.raises(AssertionError, match=says):
        scheduler.check_integrity()


def swap_two_keys(scheduler: Scheduler) -> None:
    """The index agrees with the pool, and both are wrong: the next hit would give another's KV."""
    pool = scheduler.kv.pool
    first, second = scheduler.kv.block_ids(scheduler.running[0])[0][:2]
    keys = pool.books().keys[first], pool.books().keys[second]
    for block in (first, second):
        pool.uncache(block)
    for block, key in zip((second, first), keys, strict=True):
        assert key is not None
        pool.cache(block, key)


def change_a_token(scheduler: Scheduler) -> None:
    scheduler.running[0].token_ids[1] += 1


@pytest.mark.parametrize(
    ("corrupt", "says"),
    [
        (swap_two_keys, "its key is not that of the tokens in it (and 3 more like it)"),
        (change_a_token, "request 1: its remembered keys are not those of its tokens"),
    ],
)
def test_a_wrong_key_is_found_by_the_deep_check_alone(corrupt: Corruption, says: str) -> None:
    scheduler = busy_run().scheduler
    scheduler.settle()
    corrupt(scheduler)
    scheduler.check_integrity()
    assert any(says in problem for problem in scheduler.examine(deep=True).problems)


def test_every_problem_is_told_not_only_the_first() -> None:
    scheduler = busy_run().scheduler
    add_a_reference(scheduler)
    set_a_running_one_aside(scheduler)
    assert len(scheduler.examine().problems) == 2


def test_an_encoder_entry_that_nobody_can_evict_is_told() -> None:
    run = Run(
        EngineConfig(
            scheduler=SchedulerConfig(max_num_batched_tokens=4, max_num_seqs=4),
            cache=CacheConfig(num_gpu_blocks=21, block_size=4),
            encoder=EncoderConfig(compute_budget=8, cache_size=8),
        )
    )
    run.add("a", prompt=range(10), encoder_items=(EncoderItem("image", 2, 4),))
    run.step()
    assert run.scheduler.encoder_cache is not None
    run.scheduler.encoder_cache._entries["image"].holders.clear()
    with pytest.raises(AssertionError, match="who can be evicted and who is held differ"):
        run.scheduler.check_integrity()


def test_keys_of_windows_and_partial_blocks_are_worked_out_too() -> None:
    groups = (
        KVGroupConfig(kind="full", block_size=8),
        KVGroupConfig(kind="sliding_window", block_size=4, sliding_window=8),
    )
    run = Run(
        EngineConfig(
            scheduler=SchedulerConfig(),
            cache=CacheConfig(num_gpu_blocks=41, block_size=8, groups=groups),
        )
    )
    run.add("a", prompt=range(29), max_tokens=20)
    for _ in range(10):
        run.step()
        report = run.scheduler.examine(deep=True)
        assert report.is_healthy
    assert report.kv.num_blocks_rehashed == report.kv.num_cached_blocks - (
        report.kv.num_free_cached_blocks
    )


def test_the_check_does_not_hang_on_assert_statements() -> None:
    code = (
        "from engine.kv_cache import BlockPool; pool = BlockPool(4); pool.allocate(1);"
        "pool.check_integrity([])"
    )
    run = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert "AssertionError: free + used is not the pool" in run.stderr
