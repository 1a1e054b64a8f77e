"""Every waiting request has exactly one reason in every step of any run.

What the views say of the record is compared with the reasons of each request, followed from step to
step in the scheduler's own state. The runs are random ones with everything in them: sessions,
loads, grammars, pauses, pipelines, and steps in flight.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from engine.request import Request
from engine.scheduler import SchedulerOutput
from telemetry.records import StepRow
from telemetry.vocabulary import SkipReason, StopReason, WaitReason
from tests.engine.builders import Run, config
from tests.engine.in_flight import InFlight
from tests.engine.play.draws import scenarios
from tests.engine.play.player import Player
from tests.engine.play.scenario import Scenario
from tests.telemetry.log_builder import LogBuilder, connect, insert, records, truncate

Snapshot = list[tuple[Request, SkipReason | None]]
"""Who waits after a step's `schedule()`, and what each was last set aside for."""

SCANS_NOBODY = (StopReason.preempted_this_step, StopReason.paused_all, StopReason.paused_new)
SPENT = (StopReason.token_budget, StopReason.input_budget)


class Onlooker:
    """Notes who waits when a step has been decided."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []

    def scheduled(self, play: Player, output: SchedulerOutput) -> None:
        """Looks at both queues."""
        waiting = [*play.scheduler.waiting, *play.scheduler.kv_holding_waiting]
        assert output.step == len(self.snapshots)
        self.snapshots.append([(request, request.skipped_for) for request in waiting])

    def executed(self, play: Player, output: SchedulerOutput, reports: object) -> None:
        """Nothing: who waits is decided before."""


def expected(steps: list[StepRow], snapshots: list[Snapshot]) -> dict[int, dict[int, str]]:
    """Returns the reason of each waiting request in each step that has a row."""
    before: dict[Request, tuple[str, SkipReason | None]] = {}
    found = {}
    for row in steps:
        for step in range(row.step, row.step + row.num_repeats):
            before = {r: (_reason(r, skip, row, before), skip) for r, skip in snapshots[step]}
            if step == row.step and before:
                found[step] = {request.number: reason for request, (reason, _) in before.items()}
    return found


def _reason(
    request: Request,
    skip: SkipReason | None,
    row: StepRow,
    before: dict[Request, tuple[str, SkipReason | None]],
) -> str:
    """A step that scans nobody leaves each its reason; even a pause sets holders aside, though."""
    stop = StopReason(row.stop_reason or 0)
    nobody = stop in SPENT and not (row.num_admitted or 0) + (row.num_resumed or 0)
    if stop in SCANS_NOBODY or nobody:
        reason, last_skip = before.get(request, (WaitReason.not_visited.name, None))
        return reason if skip is None or skip is last_skip else skip.name
    if request.number == row.head_request:
        return WaitReason.of(stop).name
    return WaitReason.behind_head.name if skip is None else skip.name


@pytest.fixture(scope="module")
def connection() -> Any:
    """One connection for all examples: a view is as good on the next rows."""
    return connect()


@settings(max_examples=60, deadline=None)
@given(scenarios())
def test_every_request_has_the_reason_that_it_is_followed_to(
    connection: Any, scenario: Scenario
) -> None:
    onlooker = Onlooker()
    play = Player(scenario, watchers=(onlooker,)).run()
    truncate(connection)
    insert(connection, LogBuilder.of_recorder(play.recorder))
    reasons = expected(play.recorder.steps, onlooker.snapshots)
    assert reasons_found(connection) == reasons
    assert counts_found(connection) == {s: Counter(each.values()) for s, each in reasons.items()}


def reasons_found(connection: Any) -> dict[int, dict[int, str]]:
    """Returns what the log says that each request waits for, in each step; nobody twice."""
    rows = records(connection, "FROM wait_reasons")
    found: dict[int, dict[int, str]] = {}
    for row in rows:
        found.setdefault(row["step"], {})[row["request"]] = row["wait_reason"]
    assert len(rows) == sum(map(len, found.values()))
    return found


def counts_found(connection: Any) -> dict[int, dict[str, int]]:
    """Returns how many requests wait for each reason, in each step."""
    found: dict[int, dict[str, int]] = {}
    for row in records(connection, "FROM queue_by_reason"):
        found.setdefault(row["step"], {})[row["wait_reason"]] = row["num_requests"]
    return found


def test_a_token_on_its_way_does_not_end_a_preemption_in_the_intervals(connection: Any) -> None:
    """With two steps in flight a victim's first token comes while it waits."""
    run = Run(config(async_scheduling=True, num_usable_blocks=6, enable_prefix_caching=False))
    for name in "abc":
        run.add(name, prompt=8, max_tokens=6)
    InFlight(run, 2).to_the_end()
    truncate(connection)
    insert(connection, LogBuilder.of_recorder(run.recorder))
    rows = records(connection, "FROM request_intervals ORDER BY request, start_ts")
    assert any(row["phase"] == "preempted" for row in rows)
    for row, later in pairwise(rows):
        assert row["duration_ns"] >= 0
        if row["request"] == later["request"]:
            assert row["end_ts"] == later["start_ts"]
            assert (row["phase"] == "preempted") == (later["phase"] == "recompute")
