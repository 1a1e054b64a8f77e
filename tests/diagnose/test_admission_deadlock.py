from __future__ import annotations

from typing import Any

from diagnose.diagnosis import diagnose
from diagnose.finding import Healthy, NotMeasured
from telemetry.vocabulary import EventKind, StopReason
from tests.diagnose.logs import described, finding_of, log_of, steps, verdict_of
from tests.telemetry.log_builder import LogBuilder

RULE = "admission-deadlock"
SECOND = 1_000_000_000


def stuck(seconds: float, **columns: Any) -> LogBuilder:
    """Runs well, then waits with nobody running."""
    log = described().arrived(0)
    steps(log, 50)
    own = {"running": 0, "waiting": 3, "tokens": 0, "free": 63, "head_request": 0}
    own |= {"stop": StopReason.kv_blocks_whole_prompt, "head_blocks_needed": 5}
    steps(log, 1, **(own | columns))
    log.advance(int(seconds * SECOND))
    return log.heartbeat()


def test_thirty_seconds_of_nothing_are_a_deadlock() -> None:
    finding = finding_of(log_of(stuck(30)), RULE)
    assert finding.evidence[0].value == 30 * SECOND
    assert finding.is_open


def test_less_is_not() -> None:
    assert isinstance(verdict_of(log_of(stuck(29.9)), RULE), Healthy)


def test_a_long_one_that_ended_is_cleared() -> None:
    log = steps(stuck(40), 20)
    assert not finding_of(log_of(log), RULE).is_open


def test_an_empty_engine_does_not_wait() -> None:
    assert isinstance(verdict_of(log_of(stuck(60, waiting=0)), RULE), Healthy)


def test_a_pause_is_no_deadlock() -> None:
    log = log_of(stuck(60, stop=StopReason.paused_all))
    assert isinstance(verdict_of(log, RULE), Healthy)


def test_running_requests_without_tokens_are_no_deadlock() -> None:
    assert isinstance(verdict_of(log_of(stuck(60, running=2)), RULE), Healthy)


def test_without_counts_it_is_not_measured() -> None:
    log = steps(described(), 50, running=None)  # type: ignore[arg-type]
    assert isinstance(verdict_of(log_of(log), RULE), NotMeasured)


def test_an_engine_that_died_is_not_waited_for() -> None:
    log = stuck(5).event(EventKind.engine_died)
    log.advance(100 * SECOND).heartbeat()
    assert isinstance(verdict_of(log_of(log), RULE), Healthy)


def test_without_a_rule_that_explains_it_the_cause_is_undetermined() -> None:
    finding = finding_of(log_of(stuck(60)), RULE)
    assert finding.cause.kind == "undetermined"
    assert "kv_blocks_whole_prompt" in finding.cause.sentence


def test_the_first_step_says_what_stopped_the_head() -> None:
    said = [link.sentence for link in finding_of(log_of(stuck(60)), RULE).chain]
    assert any("stopped by kv_blocks_whole_prompt: it needed 5 blocks, 63 were" in s for s in said)


def test_where_the_scan_went_to_its_end_all_were_set_aside() -> None:
    log = log_of(stuck(60, stop=StopReason.queue_empty, head_blocks_needed=None))
    said = [link.sentence for link in finding_of(log, RULE).chain]
    assert any(s.endswith("nothing ran; all that waited were set aside") for s in said)


def test_stuck_loads_are_rejected_where_they_are_not_the_cause() -> None:
    (rejected,) = finding_of(log_of(stuck(60)), RULE).rejected
    assert rejected.name == "stuck loads"


def test_it_is_the_verdict_where_nothing_else_is_wrong() -> None:
    assert diagnose(log_of(stuck(60))).verdict.rule == RULE
