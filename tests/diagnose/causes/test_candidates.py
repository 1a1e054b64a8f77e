"""Candidates for a cause beyond sizes: rates, settings, adapters, shared prefixes, connectors."""

from __future__ import annotations

from typing import Any

from diagnose.causes.change import Change
from diagnose.diagnosis import read_context
from diagnose.window import choose_window, engines_in
from tests.diagnose.logs import Arrival, MemoryLog, Run, config, log_of, run
from tests.diagnose.test_changes import two_starts
from tests.telemetry.log_builder import LogBuilder


def judged(log: MemoryLog, name: str, engine: int | None = None) -> Change:
    """What a candidate says of a log by itself, without a replay."""
    window = choose_window(log)
    context = read_context(log, window, engine or engines_in(log, window)[0], "none")
    assert context.storm is not None
    return next(c for c in context.storm.explanation.changes if c.name == name)


def crowded() -> Run:
    """Requests that come more often from the 40th on, and then are preempted."""
    arrivals = [Arrival(30 * i) for i in range(40)]
    return run(config(), arrivals + [Arrival(1200 + 9 * i) for i in range(70)])


def with_arrivals(recorded: Run, **columns: Any) -> LogBuilder:
    """The rows of a run; a column is a function of the request's number."""
    log = recorded.builder()
    for row in log.rows["request_arrivals"]:
        row |= {name: value(row["request"]) for name, value in columns.items()}
    return log


def test_requests_that_keep_coming_more_often_are_more_arrivals() -> None:
    change = judged(crowded().log(), "more arrivals")
    assert change.status == "confirmed"
    assert change.undo is not None
    assert len(change.undo.dropped) > 20
    assert "requests/s" in change.number


def test_requests_in_flight_are_told_and_never_the_cause() -> None:
    change = judged(crowded().log(), "concurrency")
    assert change.status == "rejected"
    assert "in flight" in change.number


def test_every_changed_setting_is_told_with_both_values() -> None:
    arrivals = [Arrival(7 * i) for i in range(100)]
    before = run(config(watermark=0.3, max_num_batched_tokens=256), arrivals)
    change = judged(two_starts(before, run(config(), arrivals)), "config change", engine=2)
    assert "watermark 0.3 -> 0.0" in change.number
    assert "max_num_batched_tokens 256 -> 2048" in change.number
    assert change.undo is not None
    assert change.undo.settings == {"watermark": 0.3, "max_num_batched_tokens": 256}


def test_adapters_that_came_in_are_told_with_their_requests() -> None:
    log = with_arrivals(crowded(), adapter=lambda n: "old" if n < 40 else f"new-{n % 3}")
    change = judged(log_of(log), "more adapters")
    assert change.number.startswith("1 adapter -> 4, 70 of 110 requests use the new ones")
    assert change.undo is not None
    assert len(change.undo.dropped) == 70


def test_adapters_that_were_always_there_are_no_change() -> None:
    log = with_arrivals(crowded(), adapter=lambda n: f"adapter-{n % 3}")
    change = judged(log_of(log), "more adapters")
    assert (change.status, change.undo) == ("rejected", None)


def test_prompts_that_share_less_are_new_traffic() -> None:
    log = with_arrivals(crowded(), num_shared_tokens=lambda n: 64 if n < 40 else 0)
    change = judged(log_of(log), "prefix hit rate")
    assert change.kind == "new_traffic"
    assert "prompts share 100.0 % -> 0.0 % with earlier ones" in change.number


def test_a_hit_rate_that_falls_with_prompts_as_ever_is_a_symptom() -> None:
    log = with_arrivals(crowded(), num_shared_tokens=lambda n: 32)
    change = judged(log_of(log), "prefix hit rate")
    assert change.status == "rejected"
    assert "prompts share 50.0 % all along" in change.number


def test_blocks_kept_for_saves_are_told_by_their_stage() -> None:
    log = crowded().builder()
    for row in log.rows["steps"]:
        row["num_blocks_finished"] = 40
    change = judged(log_of(log), "stuck loads")
    assert change.status == "confirmed"
    assert "0 held for loads, 40 for saves and acknowledgements" in change.number


def test_urgent_requests_that_become_more_are_told_with_their_part() -> None:
    arrivals = [Arrival(30 * i, priority=5) for i in range(40)]
    arrivals += [Arrival(1200 + 9 * i, priority=5 * (i % 2)) for i in range(70)]
    change = judged(run(config(policy="priority"), arrivals).log(), "priority churn")
    assert "urgent 0.0 % -> 50.0 % of requests" in change.number
    assert change.undo is not None
    assert set(change.undo.priority.values()) == {5}
