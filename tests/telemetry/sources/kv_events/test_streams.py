"""Publishers told apart; gaps and restarts in their numbers."""

from __future__ import annotations

import pytest

from telemetry.sources.kv_events import streams
from telemetry.sources.kv_events.messages import decode
from telemetry.sources.kv_events.streams import Numbers, Streams
from tests.telemetry.sources.kv_events.builders import payload, removed, stored


@pytest.mark.parametrize(
    ("numbers", "num_lost", "num_restarts"),
    [
        ([0, 1, 2], 0, 0),
        ([17, 18], 0, 0),  # who comes late has not lost what was before
        ([0, 1, 5], 3, 0),
        ([0, 5, 9], 7, 0),
        ([5, 6, 0, 1], 0, 1),
        ([5, 6, 2, 3], 2, 1),
        ([5, 5], 5, 1),
    ],
)
def test_gaps_and_restarts(numbers: list[int], num_lost: int, num_restarts: int) -> None:
    told = Numbers()
    for number in numbers:
        told.take(number)
    assert (told.num_lost, told.num_restarts) == (num_lost, num_restarts)


def test_what_is_missing_can_be_asked_for() -> None:
    told = Numbers()
    assert told.missing_before(7) == range(0)
    told.take(7)
    assert told.missing_before(8) == range(8, 8)
    assert told.missing_before(11) == range(8, 11)
    assert told.missing_before(3) == range(3)  # it has started anew


def test_ranks_topics_and_addresses_are_engines_of_their_own() -> None:
    one, other = Streams("tcp://a:1"), Streams("tcp://b:1")
    found = [
        one.find(b"", 0),
        one.find(b"", 1),
        one.find(b"kv", 0),
        other.find(b"", 0),
        one.find(b"", None),
    ]
    assert len({stream.engine for stream in found if stream is not None}) == 5
    assert one.find(b"", 0) is found[0]
    assert Streams("tcp://a:1").find(b"", 0).engine == found[0].engine  # type: ignore[union-attr]


def test_only_so_many_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    known = Streams("a")
    assert [known.find(b"", rank) is not None for rank in (0, 1, 2, 0)] == [True, True, False, True]


def test_an_engine_is_described_once_its_block_size_is_known() -> None:
    stream = Streams("tcp://a:1").find(b"kv\x1b", 3)
    assert stream is not None
    first = stream.describe(decode(payload(removed(1), ts=5.0)))
    second = stream.describe(decode(payload(stored(1), ts=6.0)))
    assert stream.describe(decode(payload(stored(1, block_size=99), ts=7.0))) is None
    assert first is not None
    assert second is not None
    assert (first.block_size, second.block_size) == (None, 16)
    assert (second.started_ts, second.dp_rank) == (5_000_000_000, 3)
    assert second.api_url == "tcp://a:1 kv\\x1b"
