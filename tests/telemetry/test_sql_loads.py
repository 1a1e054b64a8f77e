"""KV loads from a connector, from asking to the end."""

from __future__ import annotations

from typing import Any

from telemetry.vocabulary import EventKind
from tests.telemetry.log_builder import MS, LogBuilder, connect, records


def loads(log: LogBuilder) -> list[dict[str, Any]]:
    return records(connect(log), "FROM connector_loads ORDER BY request, nth")


def test_a_load_is_asked_for_started_and_finished() -> None:
    log = LogBuilder().arrived(0).step()
    log.event(EventKind.load_queued, 0, connector="shelf", num_tokens=64, tier=2)
    log.step().event(EventKind.load_started, 0, num_blocks=4)
    log.step().step().event(EventKind.load_finished, 0, service_ns=5)
    (row,) = loads(log)
    assert (row["connector"], row["tier"], row["request_id"]) == ("shelf", "disk", "req-0")
    assert (row["num_tokens"], row["num_blocks"], row["service_ns"]) == (64, 4, 5)
    assert (row["outcome"], row["wait_ns"], row["load_ns"]) == ("finished", 10 * MS, 20 * MS)


def test_a_load_that_failed_says_what_happens_to_its_blocks() -> None:
    log = LogBuilder().arrived(0).step().event(EventKind.load_started, 0)
    log.step().event(EventKind.load_failed, 0, num_invalid_blocks=3, policy=0)
    (row,) = loads(log)
    assert (row["outcome"], row["num_invalid_blocks"], row["policy"]) == ("failed", 3, "recompute")
    assert row["wait_ns"] == 0


def test_a_load_without_an_end_is_pending_and_still_ages() -> None:
    log = LogBuilder().arrived(0).step().event(EventKind.load_started, 0).step().step()
    (row,) = loads(log)
    assert (row["outcome"], row["ended_ts"]) == ("pending", None)
    assert row["load_ns"] == log.rows["steps"][-1]["updated_ts"] - row["started_ts"]


def test_loads_of_different_encoder_items_may_overlap() -> None:
    log = LogBuilder().arrived(0).step()
    log.event(EventKind.load_started, 0, connector="encoder", text="i", num_tokens=8)
    log.event(EventKind.load_started, 0, connector="encoder", text="j", num_tokens=4)
    log.step().event(EventKind.load_finished, 0, connector="encoder", text="j", num_tokens=4)
    log.step().event(EventKind.load_failed, 0, connector="encoder", text="i", num_tokens=8)
    assert [(row["nth"], row["item_key"], row["outcome"]) for row in loads(log)] == [
        (1, "i", "failed"),
        (2, "j", "finished"),
    ]


def test_the_late_end_of_a_load_changes_nothing() -> None:
    log = LogBuilder().arrived(0).step().event(EventKind.load_started, 0)
    log.step().event(EventKind.load_timed_out, 0)
    timed_out = log.now
    log.step().event(EventKind.load_finished, 0)
    (row,) = loads(log)
    assert (row["outcome"], row["ended_ts"]) == ("timed_out", timed_out)


def test_each_load_of_a_request_is_its_own_row() -> None:
    log = LogBuilder().arrived(0).step().event(EventKind.load_started, 0)
    log.step().event(EventKind.load_timed_out, 0)
    log.step().event(EventKind.load_queued, 0).step().event(EventKind.load_started, 0)
    assert [(row["nth"], row["outcome"]) for row in loads(log)] == [
        (1, "timed_out"),
        (2, "pending"),
    ]
