"""The block pool: the order of its free list, and its books."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv_cache import BlockPool


def test_blocks_are_handed_out_from_1() -> None:
    assert BlockPool(5).allocate(3) == [1, 2, 3]


def test_the_last_block_of_an_unhashed_release_is_the_next_one() -> None:
    pool = BlockPool(9)
    pool.release(pool.allocate(3))
    assert pool.allocate(4) == [3, 2, 1, 4]


def test_hashed_blocks_go_to_the_end_tail_first() -> None:
    pool = BlockPool(5)
    blocks = pool.allocate(3)
    for block in blocks[:2]:
        pool.cache(block, bytes([block]))
    pool.release(blocks)
    assert pool.allocate(4) == [3, 4, 2, 1]


def test_a_key_is_forgotten_only_when_its_block_is_handed_out_again() -> None:
    pool = BlockPool(3)
    pool.cache(pool.allocate(1)[0], b"key")
    pool.release([1])
    assert pool.find(b"key") == 1
    pool.allocate(2)
    assert pool.find(b"key") is None


def test_of_equal_blocks_the_oldest_is_found() -> None:
    pool = BlockPool(4)
    first, second = pool.allocate(2)
    pool.cache(first, b"key")
    pool.cache(second, b"key")
    assert pool.find(b"key") == first


def test_a_hit_takes_its_block_out_of_the_free_list() -> None:
    pool = BlockPool(3)
    pool.cache(pool.allocate(1)[0], b"key")
    pool.release([1])
    pool.take_cached([1])
    assert (pool.num_free, pool.num_free_cached) == (1, 0)


def test_more_than_is_free_is_refused() -> None:
    with pytest.raises(ValueError, match="5 blocks asked for, 3 are free"):
        BlockPool(4).allocate(5)


def test_a_reset_is_refused_while_a_block_is_in_use() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(1)
    assert not pool.reset()
    pool.release(blocks)
    assert pool.reset()


def test_integrity_notices_a_block_that_nobody_holds() -> None:
    pool = BlockPool(4)
    pool.allocate(1)
    with pytest.raises(AssertionError, match="free \\+ used"):
        pool.check_integrity([])


@given(st.lists(st.tuples(st.sampled_from(["take", "give", "hit"]), st.integers(0, 7))))
def test_free_and_used_blocks_are_the_pool(moves: list[tuple[str, int]]) -> None:
    pool = BlockPool(13)
    tables: list[list[int]] = []
    for move, number in moves:
        if move == "take" and number <= pool.num_free:
            blocks = pool.allocate(number)
            for block in blocks[::2]:
                pool.cache(block, bytes([number, block % 3]))
            tables.append(blocks)
        elif move == "give" and tables:
            pool.release(tables.pop(number % len(tables)))
        elif move == "hit":
            found = pool.find(bytes([number, number % 3]))
            if found is not None:
                pool.take_cached([found])
                tables.append([found])
        pool.check_integrity(tables)
