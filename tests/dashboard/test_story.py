"""The story of one request, from rows to lines."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard import story
from dashboard.queries import requests
from telemetry.vocabulary import FinishReason, SkipReason, StopReason
from tests.diagnose.logs import log_of
from tests.telemetry.log_builder import MS, LogBuilder

Told = tuple[list[story.Line], dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]


def evicted_once() -> LogBuilder:
    log = LogBuilder().described().arrived(0).arrived(1)
    log.step(
        num_running=1,
        num_waiting=1,
        num_blocks_free_unhashed=1,
        num_blocks_free_cached=0,
        stop_reason=StopReason.kv_blocks_whole_prompt,
        head_request=1,
        head_blocks_needed=3,
    )
    log.step().admitted(1, num_scheduled_tokens=16, num_hit_tokens=0)
    log.first_token(1).step().preempted(1, lost=17, beneficiary=0)
    log.step().step().resumed(1, hit=16, num_scheduled_tokens=2).caught_up(1)
    return log


def told(log: LogBuilder, lost_ts: int | None = None) -> Told:
    memory = log_of(log)
    request = memory.query(requests.one(1, 1)).to_pylist()[0]
    losses = memory.query(requests.losses(1, 1)).to_pylist()
    rows = memory.query(requests.story(1, 1)).to_pylist()
    intervals = memory.query(requests.intervals(1, 1)).to_pylist()
    return story.lines(rows, losses, request, lost_ts), request, losses, intervals


def finished(log: LogBuilder, **columns: Any) -> LogBuilder:
    times = {"queue_ns": 10 * MS, "prefill_ns": 5 * MS, "preempted_ns": 20 * MS}
    return log.finished(1, FinishReason.length, num_output_tokens=3, **times, **columns)


def test_arrival_says_who_waited_and_for_what() -> None:
    line = told(evicted_once())[0][0]
    assert (line.what, line.cost) == ("arrived", "10 ms")
    assert line.why == "1 waiting, 1 block free, the queue head needs 3: kv_blocks_whole_prompt"


def test_an_arrival_waits_until_its_admission_whatever_comes_between() -> None:
    log = LogBuilder().described().arrived(0).arrived(1).step()
    log.skipped(1, SkipReason.remote_kv_loading).step().step().admitted(1)
    assert told(log)[0][0].cost == "20 ms"


def test_who_still_waits_has_no_time_to_its_admission() -> None:
    log = LogBuilder().described().arrived(0).arrived(1).step()
    assert told(log.skipped(1, SkipReason.remote_kv_loading).step())[0][0].cost == ""


def test_an_eviction_says_for_whom_and_what_it_cost() -> None:
    line = told(evicted_once())[0][2]
    assert line.what == "preempted 1"
    assert line.why.startswith("for request 0, which needed 1 block; 1 block freed")
    assert "16 tokens still in the cache, 1 computed again" in line.why
    assert line.cost == "17 lost, out 20 ms"
    assert line.step == 2


def test_the_end_says_how() -> None:
    line = told(finished(evicted_once()))[0][-1]
    assert (line.what, line.why) == ("finished", "3 tokens: length")


def test_the_headline_of_an_ended_request_sums_its_waiting() -> None:
    _, request, losses, _ = told(finished(evicted_once()))
    said = story.headline(request, losses)
    assert said == "Request 1 was evicted 1 time and still finished: 40 ms, of which 30 ms waiting."


def test_a_request_that_runs_is_not_said_to_have_ended() -> None:
    _, request, losses, _ = told(evicted_once())
    assert story.headline(request, losses) == "Request 1 was evicted 1 time and has not ended."


def test_figures_of_a_running_request_come_from_its_stretches() -> None:
    _, request, losses, intervals = told(evicted_once())
    figures = {figure.name: figure.value for figure in story.figures(request, losses, intervals)}
    assert figures["queued (kv_blocks_whole_prompt)"] == "10 ms"
    assert figures["evicted, 1 time"] == "20 ms"
    assert figures["computed tokens lost"] == "17"
    assert figures["longest pause in the answer"] == "–"


@pytest.mark.parametrize("reason", ["not_visited", "behind_head", None])
def test_who_only_stood_behind_others_is_queued_for_no_reason_of_its_own(
    reason: str | None,
) -> None:
    _, request, losses, intervals = told(evicted_once())
    rows = [row | {"reason": reason} if row["phase"] == "queued" else row for row in intervals]
    names = [figure.name for figure in story.figures(request, losses, rows)]
    assert names[0] == "queued"


def test_a_dead_engine_leaves_an_open_end() -> None:
    log = evicted_once()
    line = told(log, lost_ts=log.now)[0][-1]
    assert (line.what, line.why) == ("no end", "the engine stopped without saying goodbye")


def test_what_was_not_recorded_is_a_dash() -> None:
    log = LogBuilder().described().arrived(0).arrived(1).step().admitted(1).step()
    log.preempted(1, beneficiary=0, num_computed_tokens_lost=None)
    _, request, losses, intervals = told(log)
    figures = {figure.name: figure.value for figure in story.figures(request, losses, intervals)}
    assert figures["computed tokens lost"] == "–"
