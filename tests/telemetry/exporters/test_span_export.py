"""Which spans go next: each once, also over restarts, bounded in memory and in age."""

from __future__ import annotations

import pytest

from telemetry.exporters.request_spans import BATCH
from telemetry.exporters.span_export import MAX_AGE_NS, MOST_SPANS
from tests.telemetry.exporters.traced import Traced, one_request
from tests.telemetry.log_builder import LogBuilder


def many(num: int, begin: int = 0, log: LogBuilder | None = None) -> LogBuilder:
    log = log or LogBuilder()
    for number in range(begin, begin + num):
        log.arrived(number).step().aborted(number)
    return log


def test_each_request_is_exported_once_and_only_when_it_has_ended() -> None:
    running = one_request().arrived(1)
    traced = Traced(running)
    assert traced.export.work()
    assert traced.export.work()
    assert traced.requests() == [0]
    traced.becomes(running.step().aborted(1))
    assert traced.export.work()
    assert traced.requests() == [0, 1]


def test_more_requests_than_a_batch_are_all_exported() -> None:
    traced = Traced(many(2 * BATCH + 3))
    assert traced.export.work()
    assert traced.requests() == list(range(2 * BATCH + 3))
    assert traced.export.num_spans == 2 * len(traced.requests())


def test_a_message_has_a_bounded_number_of_spans() -> None:
    log = LogBuilder()
    for number in range(BATCH):
        log.arrived(number).step().admitted(number).first_token(number)
        for _ in range(10):
            log.step().preempted(number, lost=1).step().resumed(number)
        log.finished(number)
    traced = Traced(log)
    assert traced.export.work()
    assert max(traced.sizes) == MOST_SPANS
    assert sum(traced.sizes) == len(traced.spans) > MOST_SPANS


def test_a_restart_goes_on_where_the_log_says() -> None:
    log = many(3)
    traced = Traced(log)
    assert traced.export.work()
    traced.save()
    traced.restart()
    assert traced.export.work()
    assert traced.requests() == [0, 1, 2]
    traced.becomes(many(2, 3, log))
    assert traced.export.work()
    assert traced.requests() == [0, 1, 2, 3, 4]


def test_what_was_not_saved_is_sent_again_under_the_same_ids() -> None:
    traced = Traced(many(3))
    assert traced.export.work()
    traced.restart()
    assert traced.export.work()
    assert traced.requests() == [0, 1, 2] * 2
    assert len({span.context.span_id for span in traced.spans if span.context}) == 6


def test_nothing_is_to_be_saved_twice() -> None:
    traced = Traced(many(1))
    assert traced.export.work()
    (row,) = traced.export.unsaved()
    traced.save()
    assert traced.export.unsaved() == []
    assert (row["engine"], row["next_event"]) == (1, 2)


def test_a_receiver_that_is_down_loses_nothing_and_is_counted() -> None:
    traced = Traced(many(BATCH + 1))
    traced.is_down = True
    assert not traced.export.work()
    assert not traced.export.work()
    assert (traced.export.num_failures, traced.export.num_spans) == (2, 0)
    assert traced.export.unsaved() == []
    traced.is_down = False
    assert traced.export.work()
    assert traced.requests() == list(range(BATCH + 1))


def test_what_a_receiver_missed_for_too_long_is_passed_over_and_counted() -> None:
    log = many(2)
    traced = Traced(log)
    assert traced.export.work()
    traced.is_down = True
    traced.becomes(many(3, 2, log))
    assert not traced.export.work()
    log.advance(MAX_AGE_NS)
    traced.becomes(many(1, 5, log))
    traced.is_down = False
    assert traced.export.work()
    assert traced.requests() == [0, 1, 5]
    assert traced.export.num_passed_over == 3


def test_what_ended_long_before_the_export_was_switched_on_is_not_missing() -> None:
    log = many(2).advance(MAX_AGE_NS)
    traced = Traced(many(1, 2, log))
    assert traced.export.work()
    assert traced.requests() == [2]
    assert traced.export.num_passed_over == 0


def test_a_request_whose_arrival_was_dropped_is_counted_not_invented() -> None:
    traced = Traced(LogBuilder().step().finished(0))
    assert traced.export.work()
    assert traced.export.num_passed_over == 1
    assert traced.spans == ()


def test_an_engine_that_has_ended_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced(one_request())
    traced.connection.execute("UPDATE drains SET closed = true")
    assert traced.export.work()
    asked: list[int] = []
    monkeypatch.setattr(
        traced.export._requests, "ended", lambda engine, seq: asked.append(engine) or []
    )
    assert traced.export.work()
    assert asked == []
