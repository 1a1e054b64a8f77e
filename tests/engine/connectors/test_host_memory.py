"""The pool in host memory: bounded, and what was used longest ago goes first."""

from __future__ import annotations

import numpy as np
import pytest

from engine.connectors.block_store import BlockStoreError, Payload
from engine.connectors.host_memory import HostMemoryStore

A, B, C = (bytes([n]) * 16 for n in range(3))


def block(value: int) -> Payload:
    return np.full(100, value, np.uint8)


def full() -> HostMemoryStore:
    store = HostMemoryStore(250)
    store.write(A, block(1))
    store.write(B, block(2))
    return store


def test_a_block_is_what_was_stored() -> None:
    assert full().read(B).tolist() == [2] * 100


def test_what_was_used_longest_ago_makes_room() -> None:
    store = full()
    store.read(A)
    store.write(C, block(3))
    assert [store.has(key) for key in (A, B, C)] == [True, False, True]
    assert store.num_bytes == 200


def test_a_block_that_is_written_again_counts_once() -> None:
    store = full()
    store.write(A, block(1))
    assert (len(store), store.num_bytes) == (2, 200)


def test_an_evicted_block_is_told_so() -> None:
    store = full()
    store.write(C, block(3))
    with pytest.raises(BlockStoreError, match="evicted"):
        store.read(A)


def test_who_read_a_block_keeps_it_beyond_its_eviction() -> None:
    store = full()
    read = store.read(A)
    store.write(C, block(3))
    store.write(B, block(2))
    assert read.tolist() == [1] * 100


def test_a_block_is_kept_as_it_was() -> None:
    store, mine = HostMemoryStore(250), block(1)
    store.write(A, mine)
    mine[:] = 9
    assert store.read(A).tolist() == [1] * 100


def test_a_block_larger_than_the_pool_is_refused() -> None:
    with pytest.raises(BlockStoreError, match="cpu_bytes_to_use is 50"):
        HostMemoryStore(50).write(A, block(1))
