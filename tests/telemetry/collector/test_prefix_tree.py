"""Who shares a prefix with whom, from block hashes alone."""

from __future__ import annotations

import struct
from pathlib import Path

import duckdb
import pytest

from telemetry.collector.prefix_tree import PrefixTree, Shared
from telemetry.records import RequestArrived, RequestFinished, SessionInputAdded
from telemetry.ring import RingRecorder
from telemetry.store.writer import LogWriter
from telemetry.vocabulary import FinishReason
from tests.telemetry.collector.builders import collect, collecting, ring_for, rows

BLOCK = 16


def hashes(*blocks: int) -> bytes:
    """Returns what an engine sends for a chain of blocks that are known by numbers."""
    return struct.pack(f"<{len(blocks) + 1}Q", BLOCK, *blocks)


def shares(tree: PrefixTree, *chains: tuple[int, bytes]) -> list[Shared]:
    """Returns the answers to requests' chains, told in this order."""
    return [tree.share(seq, request, chain) for seq, (request, chain) in enumerate(chains)]


def test_the_longest_prefix_counts_in_whole_blocks() -> None:
    answers = shares(
        PrefixTree(), (0, hashes(1, 2, 3)), (1, hashes(1, 2, 4)), (2, hashes(1, 2, 4, 5))
    )
    assert answers == [Shared(None, 0), Shared(0, 2 * BLOCK), Shared(1, 3 * BLOCK)]


def test_a_prompt_shares_the_outputs_of_one_that_has_ended() -> None:
    answers = shares(PrefixTree(), (0, hashes(1)), (0, hashes(1, 2, 3)), (1, hashes(1, 2, 9)))
    assert answers[-1] == Shared(0, 2 * BLOCK)


def test_an_end_shares_with_a_younger_request() -> None:
    answers = shares(PrefixTree(), (0, hashes(1)), (1, hashes(1, 2)), (0, hashes(1, 2, 3)))
    assert answers[-1] == Shared(1, 2 * BLOCK)


def test_an_end_that_shares_no_more_says_what_the_prompt_shared() -> None:
    answers = shares(PrefixTree(), (0, hashes(1, 2)), (1, hashes(1, 7)), (1, hashes(1, 7, 8)))
    assert answers[1] == answers[2] == Shared(0, BLOCK)


def test_nobody_shares_with_himself() -> None:
    assert shares(PrefixTree(), (0, hashes(1, 2)), (0, hashes(1, 2)))[-1] == Shared(None, 0)


def test_what_a_session_has_dropped_is_shared_with_nobody() -> None:
    answers = shares(PrefixTree(), (0, hashes(1, 2, 3)), (0, hashes(1, 5)), (1, hashes(1, 2, 3)))
    assert answers[-1] == Shared(0, BLOCK)


def test_the_same_event_read_again_gets_the_same_answer() -> None:
    tree = PrefixTree()
    first = shares(tree, (0, hashes(1, 2)), (1, hashes(1, 3)))
    assert shares(tree, (0, hashes(1, 2)), (1, hashes(1, 3))) == first


def test_memory_is_bounded_and_the_oldest_requests_are_forgotten_first() -> None:
    tree = PrefixTree(max_blocks=4)
    told = (0, hashes(1, 2)), (1, hashes(3, 4)), (2, hashes(1, 5)), (3, hashes(6))
    shares(tree, *told)
    assert tree.num_blocks <= 4
    # Block 1 was seen again with request 2; of request 0's own nothing is left.
    assert tree.share(9, 4, hashes(1, 2)) == Shared(2, BLOCK)


def test_a_text_without_a_full_block_shares_nothing() -> None:
    assert shares(PrefixTree(), (0, hashes()), (1, hashes())) == [Shared(None, 0)] * 2


# ------------------------------------------------------------------------- through the collector


def arrive(ring: RingRecorder, request: int, *blocks: int) -> None:
    now = ring._clock.now()
    event = RequestArrived(step=0, ts=now, request=request, prefix_hashes=hashes(*blocks))
    ring.record_events([event])


SHARED = "SELECT request, prefix_request, num_shared_tokens FROM {} ORDER BY seq"


def test_every_table_that_tells_of_a_text_says_what_it_shares(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    arrive(ring, 0, 1, 2)
    now = ring._clock.now()
    whole = {"step": 0, "ts": now, "request": 1, "prefix_hashes": hashes(1, 2, 3)}
    ring.record_events(
        [
            RequestArrived(step=0, ts=now, request=1, prefix_hashes=hashes(1)),
            SessionInputAdded(**whole),
            RequestFinished(reason=FinishReason.stop, **whole),
        ]
    )
    collect(log)
    ring.close()
    assert rows(log, SHARED.format("request_arrivals")) == [(0, None, 0), (1, 0, BLOCK)]
    assert rows(log, SHARED.format("session_inputs")) == [(1, 0, 2 * BLOCK)]
    assert rows(log, SHARED.format("request_finishes")) == [(1, 0, 2 * BLOCK)]


def test_an_arrival_without_hashes_is_not_measured(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    ring.record_events([RequestArrived(step=0, ts=ring._clock.now(), request=0)])
    collect(log)
    ring.close()
    assert rows(log, SHARED.format("request_arrivals")) == [(0, None, None)]


def test_a_collector_that_starts_anew_learns_what_the_ring_still_holds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    arrive(ring, 0, 1, 2)
    collect(log)
    arrive(ring, 1, 1, 2, 3)
    collect(log)
    ring.close()
    assert rows(log, SHARED.format("request_arrivals")) == [(0, None, 0), (1, 0, 2 * BLOCK)]


def test_a_flush_that_is_done_again_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    arrive(ring, 0, 1, 2)
    arrive(ring, 1, 1)
    broken = [True]
    commit = LogWriter._commit

    def fails_once(writer: LogWriter) -> None:
        if broken and broken.pop():
            raise duckdb.IOException("no room")
        commit(writer)

    monkeypatch.setattr(LogWriter, "_commit", fails_once)
    with collecting(log) as collector:
        collector.drain()
        collector.drain()
    ring.close()
    assert rows(log, SHARED.format("request_arrivals")) == [(0, None, 0), (1, 0, BLOCK)]


def test_no_hash_is_stored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    arrive(ring, 0, 0x1122334455667788)
    collect(log)
    ring.close()
    [path] = log.glob("*.duckdb")
    assert struct.pack("<Q", 0x1122334455667788) not in path.read_bytes()
