"""Counts out of the log: equal to SQL's, and the same however they were read."""

from __future__ import annotations

import pytest

from telemetry.exporters.totals import NOT_MEASURED, EngineTotals
from telemetry.vocabulary import EventKind, PreemptionCause, StopReason
from tests.telemetry.exporters.traced import ConnectionLog, Traced, storm_log
from tests.telemetry.log_builder import LogBuilder, insert, records

ENGINE = 1


def totals_of(log: LogBuilder) -> EngineTotals:
    totals = EngineTotals(ENGINE)
    totals.read(ConnectionLog(Traced(log).connection))
    return totals


@pytest.fixture(scope="module")
def storm() -> Traced:
    return Traced(storm_log())


@pytest.fixture(scope="module")
def totals(storm: Traced) -> EngineTotals:
    totals = EngineTotals(ENGINE)
    totals.read(ConnectionLog(storm.connection))
    return totals


def test_preemptions_and_lost_tokens_by_cause_equal_the_view(
    storm: Traced, totals: EngineTotals
) -> None:
    rows = records(
        storm.connection,
        "SELECT cause, count(*) AS num, sum(num_computed_tokens_lost)::BIGINT AS lost "
        "FROM preemptions GROUP BY cause",
    )
    counted = {cause: num for cause, num in totals.preemptions.items() if num}
    assert counted == {row["cause"]: row["num"] for row in rows}
    assert sum(totals.tokens_lost.values()) == sum(row["lost"] for row in rows)


def test_steps_and_tokens_equal_the_table(storm: Traced, totals: EngineTotals) -> None:
    (row,) = records(
        storm.connection,
        "SELECT sum(num_repeats)::BIGINT AS steps, sum(num_scheduled_tokens)::BIGINT AS scheduled, "
        "sum(num_recomputed_tokens)::BIGINT AS recomputed FROM steps",
    )
    assert totals.steps.total() == row["steps"]
    assert totals.num_tokens_scheduled == row["scheduled"]
    assert totals.num_tokens_recomputed == row["recomputed"] > 0
    assert totals.num_unattributed == 0


def test_reading_as_it_grows_equals_reading_at_once(totals: EngineTotals) -> None:
    whole = storm_log()
    growing = Traced(LogBuilder(ENGINE))
    piecewise = EngineTotals(ENGINE)
    for _ in range(4):
        part = LogBuilder(ENGINE)
        for table, rows in whole.rows.items():
            part.rows[table] = [rows.pop(0) for _ in range((len(rows) + 3) // 4)]
        insert(growing.connection, part)
        piecewise.read(ConnectionLog(growing.connection))
    for table in whole.rows:
        if whole.rows[table]:
            insert(growing.connection, whole, tables=[table])
    piecewise.read(ConnectionLog(growing.connection))
    for name in ("preemptions", "tokens_lost", "steps", "blocks", "num_tokens_recomputed"):
        assert getattr(piecewise, name) == getattr(totals, name)


def test_the_newest_step_says_who_holds_the_blocks() -> None:
    log = LogBuilder().step(num_blocks_running=5, stop_reason=StopReason.token_budget)
    log.step(num_blocks_running=7, num_blocks_free_cached=2, stop_reason=StopReason.queue_empty)
    blocks = totals_of(log).blocks
    assert (blocks["running"], blocks["free_cached"]) == (7, 2)


def test_rows_that_were_lost_are_counted_by_region() -> None:
    log = LogBuilder().step()
    lost = {"events": (0, 4), "steps": (10, 10), "blob": (0, 99)}
    for number, (region, (first, last)) in enumerate(lost.items()):
        seq = first if region == "events" else (1 << 63) + number
        log.event(
            EventKind.records_dropped, seq=seq, region=region, first_lost=first, last_lost=last
        )
    assert totals_of(log).dropped == {"events": 5, "steps": 1, "blob": 100, "step_requests": 0}


def test_preemptions_that_only_the_scheduler_knows_of_are_unattributed() -> None:
    log = LogBuilder().arrived(0).step(num_preemptions_total=0).preempted(0, lost=3)
    assert totals_of(log.step(num_preemptions_total=4)).num_unattributed == 3


def test_a_source_that_cannot_know_what_was_lost_has_no_count_of_it() -> None:
    log = LogBuilder().arrived(0).step().preempted(0, num_computed_tokens_lost=None)
    totals = totals_of(log)
    assert totals.preemptions["kv_full"] == 1
    assert "kv_full" not in totals.tokens_lost


def test_a_source_that_cannot_know_the_cause_says_so() -> None:
    log = LogBuilder().arrived(0).step(stop_reason=None).preempted(0, lost=3, cause=None)
    totals = totals_of(log)
    assert (totals.preemptions[NOT_MEASURED], totals.steps[NOT_MEASURED]) == (1, 1)


def test_an_engine_that_has_ended_is_read_once() -> None:
    traced = Traced(LogBuilder().step(stop_reason=StopReason.queue_empty))
    totals = EngineTotals(ENGINE)
    totals.read(ConnectionLog(traced.connection), has_ended=True)
    traced.connection.execute("DROP TABLE steps CASCADE")
    totals.read(ConnectionLog(traced.connection), has_ended=True)
    assert totals.steps == {"queue_empty": 1}


def test_an_engine_without_a_step_has_measured_no_token() -> None:
    totals = totals_of(LogBuilder())
    assert (totals.num_tokens_scheduled, totals.num_tokens_recomputed) == (None, None)
    assert totals.preemptions == {cause.name: 0 for cause in PreemptionCause}
