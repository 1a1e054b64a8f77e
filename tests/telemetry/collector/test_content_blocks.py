"""How much of a prompt repeats where the prefix cache cannot see it, from hashes alone."""

from __future__ import annotations

import struct
from pathlib import Path

from telemetry.collector.prefix_tree import PrefixTree
from telemetry.records import RequestArrived, RequestFinished
from telemetry.ring import RingRecorder
from telemetry.vocabulary import FinishReason
from tests.telemetry.collector.builders import collect, ring_for, rows
from tests.telemetry.collector.test_prefix_tree import BLOCK, hashes


def contents(*blocks: int) -> bytes:
    """Returns what an engine sends of what is in blocks, known by numbers."""
    return struct.pack(f"<{len(blocks)}Q", *blocks)


def told(tree: PrefixTree, request: int, chain: bytes, content: bytes | None) -> int | None:
    """Returns how many blocks of an arriving request repeat what a prompt had."""
    return tree.share(tree.next_seq, request, chain, content).shared_content_blocks


def test_text_under_other_keys_is_counted() -> None:
    tree = PrefixTree()
    assert told(tree, 0, hashes(1, 2, 3), contents(11, 12, 13)) == 0
    assert told(tree, 1, hashes(4, 5, 6), contents(11, 12, 19)) == 2


def test_text_at_another_place_is_counted() -> None:
    tree = PrefixTree()
    told(tree, 0, hashes(1, 2, 3), contents(11, 12, 13))
    assert told(tree, 1, hashes(4, 5, 6), contents(19, 11, 12)) == 2


def test_a_shared_prefix_is_not_counted_and_what_repeats_behind_it_is() -> None:
    tree = PrefixTree()
    told(tree, 0, hashes(1, 2, 3, 4), contents(11, 12, 13, 14))
    assert told(tree, 1, hashes(1, 2, 5, 6), contents(11, 12, 19, 14)) == 1


def test_what_repeats_within_one_prompt_alone_is_not_counted() -> None:
    tree = PrefixTree()
    assert told(tree, 0, hashes(1, 2, 3), contents(11, 11, 11)) == 0
    assert told(tree, 1, hashes(4, 5), contents(11, 11)) == 2


def test_what_was_not_told_is_not_measured() -> None:
    tree = PrefixTree()
    told(tree, 0, hashes(1), contents(11))
    assert told(tree, 1, hashes(2), None) is None


def test_an_end_says_nothing_of_contents_and_keeps_those_of_the_arrival() -> None:
    tree = PrefixTree()
    told(tree, 0, hashes(1), contents(11))
    assert told(tree, 0, hashes(1, 2), None) is None
    assert told(tree, 1, hashes(3), contents(11)) == 1


def test_the_same_event_read_again_gets_the_same_answer() -> None:
    tree = PrefixTree()
    first = tree.share(0, 0, hashes(1), contents(11))
    assert tree.share(0, 0, hashes(1), contents(11)) == first


# ------------------------------------------------------------------------------------------ memory


def test_contents_are_forgotten_with_their_request() -> None:
    """A prefix of which nobody is remembered any more is new, and no text under other keys."""
    tree = PrefixTree(max_blocks=2)
    told(tree, 0, hashes(1, 2), contents(11, 12))
    told(tree, 1, hashes(3, 4), contents(13, 14))
    assert (tree.num_requests, tree.num_contents) == (1, 2)
    assert told(tree, 2, hashes(1, 2), contents(11, 12)) == 0


def test_contents_that_somebody_had_since_stay() -> None:
    tree = PrefixTree(max_blocks=4)
    told(tree, 0, hashes(1, 2), contents(11, 12))
    told(tree, 1, hashes(3, 4), contents(11, 14))
    told(tree, 2, hashes(5, 6), contents(15, 16))
    assert tree.num_requests == 2
    assert told(tree, 3, hashes(7, 8), contents(11, 12)) == 1


def test_requests_that_share_all_their_blocks_are_forgotten_too() -> None:
    tree = PrefixTree(max_words=400)
    for request in range(100):
        assert told(tree, request, hashes(1, 2), contents(11, 12)) == 0
    assert tree.num_requests <= 400 // 32
    assert tree.share(100, 100, hashes(1, 2)).num_shared_tokens == 2 * BLOCK


# -------------------------------------------------------------------------- through the collector


def arrive(ring: RingRecorder, request: int, chain: bytes, content: bytes | None) -> None:
    now = ring._clock.now()
    event = RequestArrived(
        step=0, ts=now, request=request, prefix_hashes=chain, content_hashes=content
    )
    ring.record_events([event])


REPEATED = "SELECT request, shared_content_blocks FROM request_arrivals ORDER BY seq"


def test_arrivals_say_how_much_repeats_and_whether_that_is_known(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    arrive(ring, 0, hashes(1, 2), contents(11, 12))
    arrive(ring, 1, hashes(3, 4), contents(11, 12))
    arrive(ring, 2, hashes(5), None)
    arrive(ring, 3, hashes(), contents())
    now = ring._clock.now()
    end = RequestFinished(
        step=0, ts=now, request=0, reason=FinishReason.stop, prefix_hashes=hashes(1, 2)
    )
    ring.record_events([end])
    collect(log)
    ring.close()
    assert rows(log, REPEATED) == [(0, 0), (1, 2), (2, None), (3, 0)]


def test_a_collector_that_starts_anew_learns_the_contents_that_the_ring_holds(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    arrive(ring, 0, hashes(1), contents(11))
    collect(log)
    arrive(ring, 1, hashes(2), contents(11))
    collect(log)
    ring.close()
    assert rows(log, REPEATED) == [(0, 0), (1, 1)]


def test_no_hash_of_a_content_is_stored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    arrive(ring, 0, hashes(1), contents(0x1122334455667788))
    collect(log)
    ring.close()
    [path] = log.glob("*.duckdb")
    assert contents(0x1122334455667788) not in path.read_bytes()
