"""The stretches of a request's life: without gap, without overlap, from arrival to end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from telemetry.vocabulary import EventKind, PreemptionCause, SkipReason, StopReason
from tests.telemetry.log_builder import LogBuilder, connect, insert, records, truncate
from tests.telemetry.test_sql_preemptions import REQUESTS, RUNS, played

IN_ORDER = "ORDER BY request, start_ts, end_ts NULLS LAST"


def intervals(log: LogBuilder) -> list[dict[str, Any]]:
    return records(connect(log), f"FROM request_intervals {IN_ORDER}")


def phases(log: LogBuilder) -> list[tuple[str, int | None]]:
    """Returns each phase with its length in steps."""
    return [
        (row["phase"], None if row["is_open"] else row["duration_ns"] // log.step_ns)
        for row in intervals(log)
    ]


def test_a_life_without_trouble() -> None:
    log = LogBuilder().arrived(0).step().step().admitted(0)
    log.step().step().step().first_token(0).step().finished(0)
    assert phases(log) == [("queued", 1), ("prefill", 3), ("decode", 1)]


def test_after_a_preemption_it_recomputes_until_its_next_token() -> None:
    log = LogBuilder().arrived(0).step().admitted(0).step().first_token(0).step().preempted(0)
    log.step().step().resumed(0).step().step().step().caught_up(0).step().finished(0)
    lengths = [("queued", 0), ("prefill", 1), ("decode", 1)]
    assert phases(log) == [*lengths, ("preempted", 2), ("recompute", 3), ("decode", 1)]


def test_a_first_token_after_a_resumption_ends_the_recomputation_once() -> None:
    log = LogBuilder().arrived(0).step().admitted(0).step().preempted(0)
    log.step().resumed(0).step().first_token(0).caught_up(0).step().finished(0)
    kinds = [phase for phase, _ in phases(log)]
    assert kinds == ["queued", "prefill", "preempted", "recompute", "decode"]


def test_a_request_that_is_aborted_in_the_queue_was_only_queued() -> None:
    log = LogBuilder().arrived(0).step().step().aborted(0)
    assert phases(log) == [("queued", 1)]


def test_an_open_interval_lasts_to_the_newest_moment_of_its_engine() -> None:
    log = LogBuilder().arrived(0).step().step().step()
    later = LogBuilder(engine=2, start=log.now + 10**12).step()
    rows = records(connect(log, later), "FROM request_intervals")
    newest = log.rows["steps"][-1]["updated_ts"]
    assert [(row["is_open"], row["end_ts"]) for row in rows] == [(True, None)]
    assert rows[0]["duration_ns"] == newest - log.rows["request_arrivals"][0]["ts"]


def test_each_phase_is_numbered() -> None:
    log = LogBuilder().arrived(0).step().admitted(0)
    for _ in range(3):
        log.step().preempted(0).step().resumed(0)
    numbers = [row["nth"] for row in intervals(log) if row["phase"] == "preempted"]
    assert numbers == [1, 2, 3]


def test_a_load_runs_while_its_request_waits() -> None:
    log = LogBuilder().arrived(0).step().event(EventKind.load_started, 0)
    log.step().step().event(EventKind.load_finished, 0).step().admitted(0)
    log.step().first_token(0).finished(0)
    assert sorted(phases(log)) == [("decode", 0), ("load", 2), ("prefill", 1), ("queued", 3)]


STOP = {"num_admitted": 0, "num_resumed": 0, "head_request": 0}


@pytest.mark.parametrize(
    ("request_", "columns", "reason"),
    [
        (0, {"stop_reason": StopReason.max_num_seqs}, "max_num_seqs"),
        (1, {"stop_reason": StopReason.max_num_seqs}, "behind_head"),
        (0, {"stop_reason": StopReason.preempted_this_step, "head_request": 9}, "not_visited"),
        (1, {"stop_reason": StopReason.token_budget}, "not_visited"),
        (1, {"stop_reason": StopReason.token_budget, "num_admitted": 1}, "behind_head"),
        (1, {}, None),
    ],
)
def test_the_reason_is_that_of_the_first_step_that_left_it_waiting(
    request_: int, columns: dict[str, Any], reason: str | None
) -> None:
    log = LogBuilder().arrived(request_).step(**STOP | columns).step().admitted(request_)
    assert intervals(log)[0]["reason"] == reason


def test_who_is_set_aside_has_that_reason() -> None:
    log = LogBuilder().arrived(0).step(stop_reason=StopReason.queue_empty)
    log.skipped(0, SkipReason.lora_slots).step().admitted(0)
    assert intervals(log)[0]["reason"] == "lora_slots"


def test_who_is_let_in_at_once_waited_for_nothing() -> None:
    log = LogBuilder().arrived(0).step(stop_reason=StopReason.max_num_seqs).admitted(0)
    assert intervals(log)[0]["reason"] is None


def test_a_victim_is_first_looked_at_in_the_step_after() -> None:
    log = LogBuilder().arrived(0).step().admitted(0)
    log.step(stop_reason=StopReason.preempted_this_step).preempted(0)
    log.step(**STOP | {"stop_reason": StopReason.kv_blocks_chunk}).step().resumed(0)
    assert [row["reason"] for row in intervals(log)][2] == "kv_blocks_chunk"


def test_a_victim_of_a_cache_reset_is_looked_at_in_the_very_step() -> None:
    log = LogBuilder().arrived(0).step().admitted(0)
    log.step(**STOP | {"stop_reason": StopReason.max_num_seqs})
    log.preempted(0, cause=PreemptionCause.cache_reset).step().resumed(0)
    assert [row["reason"] for row in intervals(log)][2] == "max_num_seqs"


@pytest.fixture(scope="module")
def connection() -> Any:
    """One connection for all examples: a view is as good on the next rows."""
    return connect()


@settings(max_examples=30, deadline=None)
@given(RUNS, REQUESTS)
def test_the_intervals_of_a_run_tile_every_life(
    connection: Any, limits: dict[str, Any], requests: list[tuple[Any, ...]]
) -> None:
    run = played(limits, requests, 60)
    truncate(connection)
    insert(connection, LogBuilder.of_recorder(run.recorder))
    rows = records(connection, f"FROM request_intervals {IN_ORDER}")
    lives = {row["request"]: row for row in records(connection, "FROM requests")}
    for number, life in lives.items():
        own = [row for row in rows if row["request"] == number]
        assert own[0]["start_ts"] == life["ts"]
        assert own[-1]["end_ts"] == life["finished_ts"]
        for before, after in pairwise(own):
            assert before["end_ts"] == after["start_ts"]
    for phase in ("queued", "preempted"):
        told = {n: life[f"{phase.replace('queued', 'queue')}_ns"] for n, life in lives.items()}
        for number, ns in told.items():
            own = [r for r in rows if r["request"] == number and r["phase"] == phase]
            if ns is not None and not any(r["is_open"] for r in own):
                assert sum(r["duration_ns"] for r in own) == ns
