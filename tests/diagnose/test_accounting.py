from __future__ import annotations

from diagnose.accounting import Accounting, account
from diagnose.diagnosis import diagnose
from diagnose.reading import Scope
from diagnose.window import choose_window
from telemetry.vocabulary import PreemptionCause
from tests.diagnose.logs import described, log_of, preempting_step, pressed, steps
from tests.telemetry.log_builder import LogBuilder


def accounted(log: LogBuilder, *, start: int | None = None, saw_start: bool = True) -> Accounting:
    memory = log_of(log)
    window = choose_window(memory)
    first = window.start_ts if start is None else start
    return account(memory, Scope(1, first, window.end_ts), saw_start=saw_start)


def test_every_cause_is_counted_apart() -> None:
    log = described().arrived(0).arrived(1).arrived(2)
    steps(log, 5)
    preempting_step(log, [1])
    preempting_step(log, [2], cause=PreemptionCause.priority)
    preempting_step(log, [1], cause=PreemptionCause.cache_reset, beneficiary=None)
    preempting_step(log, [2], cause=None)
    seen = accounted(log)
    assert (seen.num_kv_full, seen.num_priority, seen.num_cache_reset) == (1, 1, 1)
    assert seen.num_cause_unknown == 1
    assert seen.num_rows == 4


def test_rows_that_were_dropped_are_unattributed() -> None:
    log = pressed(num_evicted=20)
    log.rows["request_events"] = [
        row for row in log.rows["request_events"] if row.get("request") != 95
    ]
    seen = accounted(log)
    assert seen.counter == 20
    assert seen.num_rows == 19
    assert seen.unattributed == 1
    assert seen.equals_counter is False


def test_a_counter_that_lags_is_shown_as_less_than_nothing() -> None:
    log = described().arrived(0).arrived(1)
    steps(log, 3, num_preemptions_total=0)
    log.preempted(1, lost=5, beneficiary=0)
    assert accounted(log).unattributed == -1


def test_without_a_counter_nothing_is_compared() -> None:
    log = described().arrived(0)
    steps(log, 3, num_preemptions_total=None)
    log.preempted(0, lost=5)
    seen = accounted(log)
    assert seen.counter is None
    assert seen.unattributed is None
    assert seen.equals_counter is None


def test_the_counter_of_a_window_begins_where_the_window_does() -> None:
    log = described().arrived(0).arrived(1)
    preempting_step(log, [1])
    steps(log, 10)
    start = log.now
    preempting_step(log, [1])
    seen = accounted(log, start=start, saw_start=False)
    assert seen.counter == seen.num_rows == 1


def test_rows_lost_at_the_start_of_the_engine_still_count() -> None:
    log = pressed(num_evicted=20)
    kept = log.rows["steps"][230:]
    log.rows["steps"] = kept
    log.rows["request_events"] = [
        row for row in log.rows["request_events"] if row["ts"] >= kept[0]["ts"]
    ]
    seen = accounted(log)
    assert seen.counter == 20
    assert seen.unattributed == 20 - seen.num_rows > 0


def test_a_heartbeat_that_knows_more_is_believed() -> None:
    log = described().arrived(0)
    steps(log, 3)
    log.heartbeat(num_preemptions=2)
    assert accounted(log).unattributed == 2


def test_the_parts_of_what_was_lost_add_up() -> None:
    seen = accounted(pressed(num_evicted=20, times=3))
    assert seen.loss.num_lost == 20 * (40 + 50 + 60)
    assert seen.loss.identity_holds


def test_losses_that_are_not_recorded_are_no_zeros() -> None:
    log = pressed(num_evicted=2, num_computed_tokens_lost=None)
    seen = accounted(log)
    assert seen.loss.num_lost is None
    assert seen.loss.identity_holds is None


def test_without_preemptions_nothing_was_lost() -> None:
    log = described().arrived(0)
    steps(log, 3)
    seen = accounted(log)
    assert seen.loss.num_lost == 0
    assert seen.loss.identity_holds


def test_who_paid_for_whom() -> None:
    log = described().arrived(0).arrived(1).arrived(2)
    preempting_step(log, [2], beneficiary=0)
    preempting_step(log, [1], beneficiary=1)
    preempting_step(log, [0], beneficiary=2)
    seen = accounted(log)
    assert (seen.num_newer_paid, seen.num_itself_paid, seen.num_older_paid) == (1, 1, 1)


def test_the_hardest_hit_come_first() -> None:
    log = described().arrived(0).arrived(1)
    preempting_step(log, [1])
    preempting_step(log, [1])
    preempting_step(log, [0])
    victims = accounted(log).victims
    assert [(paid.request, paid.times) for paid in victims] == [(1, 2), (0, 1)]


def test_token_work_that_does_not_add_up_is_seen() -> None:
    log = described()
    steps(log, 3)
    log.rows["steps"][1]["num_decode_tokens"] = 0
    assert accounted(log).work.adds_up is False


def test_unattributed_preemptions_lower_the_confidence() -> None:
    log = pressed(num_evicted=20)
    log.rows["request_events"] = [
        row for row in log.rows["request_events"] if row.get("request") != 95
    ]
    finding = diagnose(log_of(log)).findings[0]
    assert finding.confidence.level != "high"
