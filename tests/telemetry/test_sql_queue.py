"""Every waiting request has exactly one reason: by hand, and against a model of each request."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import Request
from telemetry.records import StepRow
from telemetry.vocabulary import FinishReason, SkipReason, StopReason, WaitReason
from tests.engine.builders import Run, config
from tests.telemetry.log_builder import LogBuilder, connect, insert, records, truncate

SKIP = SkipReason.grammar_compiling


def queue(log: LogBuilder) -> dict[int, dict[str | None, int]]:
    """Returns the reasons of each step that left somebody waiting."""
    return by_step(records(connect(log), "FROM queue_by_reason"))


def by_step(rows: list[dict[str, Any]]) -> dict[int, dict[str | None, int]]:
    steps: dict[int, dict[str | None, int]] = {}
    for row in rows:
        steps.setdefault(row["step"], {})[row["wait_reason"]] = row["num_requests"]
    return steps


def scan(
    stop: StopReason, *, waiting: int, head: int | None = None, **columns: Any
) -> dict[str, Any]:
    counts = {"num_admitted": 0, "num_resumed": 0, "num_waiting": waiting}
    return counts | {"stop_reason": stop, "head_request": head} | columns


def test_the_head_has_the_stop_reason_and_the_others_are_behind_it() -> None:
    log = LogBuilder().arrived(0).arrived(1).arrived(2)
    log.step(**scan(StopReason.kv_blocks_chunk, waiting=3, head=0))
    assert queue(log) == {0: {"kv_blocks_chunk": 1, "behind_head": 2}}


def test_who_is_set_aside_keeps_its_reason_until_it_is_admitted() -> None:
    log = LogBuilder().arrived(0).arrived(1)
    log.step(**scan(StopReason.max_num_seqs, waiting=2, head=1)).skipped(0, SKIP)
    log.step(**scan(StopReason.max_num_seqs, waiting=2, head=1))
    log.step(**scan(StopReason.max_num_seqs, waiting=1, head=1, num_admitted=1)).admitted(0)
    both = {"grammar_compiling": 1, "max_num_seqs": 1}
    assert queue(log) == {0: both, 1: both, 2: {"max_num_seqs": 1}}


def test_who_was_set_aside_and_is_now_the_head_counts_as_the_head() -> None:
    log = LogBuilder().arrived(0)
    log.step(**scan(StopReason.queue_empty, waiting=1)).skipped(0, SKIP)
    log.step(**scan(StopReason.kv_blocks_chunk, waiting=1, head=0))
    assert queue(log) == {0: {"grammar_compiling": 1}, 1: {"kv_blocks_chunk": 1}}


def test_a_step_that_preempts_leaves_each_its_reason_and_new_ones_are_not_visited() -> None:
    log = LogBuilder().arrived(0).arrived(1)
    log.step(**scan(StopReason.kv_blocks_chunk, waiting=2, head=0)).arrived(2)
    log.step(**scan(StopReason.preempted_this_step, waiting=4, head=9)).preempted(9)
    assert queue(log)[1] == {"kv_blocks_chunk": 1, "behind_head": 1, "not_visited": 2}


def test_new_ones_stay_not_visited_until_a_step_scans() -> None:
    log = LogBuilder().arrived(0).step(**scan(StopReason.preempted_this_step, waiting=1))
    log.arrived(1).step(**scan(StopReason.token_budget, waiting=2, head=0))
    log.step(**scan(StopReason.max_num_seqs, waiting=2, head=0))
    new = {0: {"not_visited": 1}, 1: {"not_visited": 2}}
    assert queue(log) == new | {2: {"max_num_seqs": 1, "behind_head": 1}}


def test_a_token_budget_that_admissions_spent_is_a_scan() -> None:
    log = LogBuilder().arrived(0).arrived(1).arrived(2)
    stop = scan(StopReason.token_budget, waiting=2, head=1, num_admitted=1)
    assert queue(log.step(**stop).admitted(0)) == {0: {"token_budget": 1, "behind_head": 1}}


def test_a_source_without_stop_reasons_leaves_the_reason_open() -> None:
    log = LogBuilder().arrived(0).step(num_waiting=3)
    assert queue(log) == {0: {None: 3}}


def test_a_stretch_of_the_log_has_the_same_rows() -> None:
    log = LogBuilder().arrived(0).arrived(1)
    log.step(**scan(StopReason.kv_blocks_chunk, waiting=2, head=0))
    for _ in range(5):
        log.step(**scan(StopReason.preempted_this_step, waiting=2))
    connection = connect(log)
    begin = log.rows["steps"][3]["ts"]
    for until in (begin, begin + log.step_ns, None):
        bound = "NULL::BIGINT" if until is None else until
        stretch = records(
            connection, f"FROM queue_by_reason_between({begin}, {bound}) ORDER BY ALL"
        )
        where = f"ts >= {begin}" + ("" if until is None else f" AND ts <= {until}")
        whole = records(connection, f"FROM queue_by_reason WHERE {where} ORDER BY ALL")
        assert stretch == whole != []


# --------------------------------------------------------------- against the real scheduler's queue


Snapshot = list[tuple[Request, SkipReason | None]]
"""Who waits after a step's `schedule()`, and what each was last set aside for."""


def expected_reasons(steps: list[StepRow], snapshots: list[Snapshot]) -> dict[int, Counter[str]]:
    """Returns each step's reasons, by following every request from step to step."""
    reasons: dict[Request, str] = {}
    expected = {}
    for row in steps:
        for step in range(row.step, row.step + row.num_repeats):
            waiting = snapshots[step]
            reasons = {r: _reason(r, skip, row, reasons) for r, skip in waiting}
            if step == row.step and waiting:
                expected[step] = Counter(reasons.values())
    return expected


def _reason(
    request: Request, skip: SkipReason | None, row: StepRow, before: dict[Request, str]
) -> str:
    assert row.stop_reason is not None
    stop = StopReason(row.stop_reason)
    let_in = (row.num_admitted or 0) + (row.num_resumed or 0)
    scanned = stop is not StopReason.preempted_this_step and not (
        stop is StopReason.token_budget and let_in == 0
    )
    if scanned and request.number == row.head_request:
        return WaitReason.of(stop).name
    if not scanned and request in before:
        return before[request]
    if skip is not None:
        return skip.name
    return WaitReason.behind_head.name if scanned else WaitReason.not_visited.name


LIMITS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["fcfs", "priority"]),
        "num_usable_blocks": st.integers(10, 24),
        "block_size": st.sampled_from([1, 2]),
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(1, 12),
        "max_loras": st.sampled_from([None, 1]),
    }
)
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "arrives": st.integers(0, 10),
            "in_mid_step": st.booleans(),
            "prompt": st.integers(1, 6),
            "max_tokens": st.integers(1, 8),
            "priority": st.integers(0, 2),
            "adapter": st.sampled_from([None, "a", "b"]),
            "blocked_for": st.sampled_from([0, 0, 1, 4]),
            "aborts_after": st.one_of(st.none(), st.integers(0, 9)),
        }
    ),
    min_size=2,
    max_size=10,
)


def played(limits: dict[str, Any], requests: list[dict[str, Any]]) -> tuple[Run, list[Snapshot]]:
    """Returns a run of 40 steps, and who waited in each."""
    run = Run(config(**limits))
    snapshots: list[Snapshot] = []
    for step in range(40):
        _act(run, requests, step, in_mid_step=False)
        output = run.scheduler.schedule()
        waiting = [*run.scheduler.waiting, *run.scheduler.kv_holding_waiting]
        snapshots.append([(request, request.skipped_for) for request in waiting])
        _act(run, requests, step, in_mid_step=True)
        run.scheduler.update_from_output(output, run.runner.execute(output))
    return run, snapshots


def _act(run: Run, requests: list[dict[str, Any]], step: int, in_mid_step: bool) -> None:
    for number, spec in enumerate(requests):
        if spec["in_mid_step"] is not in_mid_step:
            continue
        age = step - spec["arrives"]
        if age == 0:
            run.add(
                f"r{number}",
                prompt=spec["prompt"],
                max_tokens=spec["max_tokens"],
                priority=spec["priority"],
                adapter=spec["adapter"],
                blocked_by=SKIP if spec["blocked_for"] else None,
            )
        if age == spec["blocked_for"] > 0:
            run.scheduler.unblock(f"r{number}")
        if age == spec["aborts_after"]:
            run.scheduler.finish_requests([f"r{number}"], FinishReason.abort_client)


@pytest.fixture(scope="module")
def connection() -> Any:
    """One connection for all examples: a view is as good on the next rows."""
    return connect()


@settings(max_examples=40, deadline=None)
@given(LIMITS, REQUESTS)
def test_the_counts_are_those_of_following_every_request(
    connection: Any, limits: dict[str, Any], requests: list[dict[str, Any]]
) -> None:
    run, snapshots = played(limits, requests)
    truncate(connection)
    insert(connection, LogBuilder.of_recorder(run.recorder))
    found = by_step(records(connection, "FROM queue_by_reason"))
    assert found == expected_reasons(run.recorder.steps, snapshots)
    rows = records(connection, "SELECT step, num_waiting FROM steps WHERE num_waiting > 0")
    assert {row["step"]: row["num_waiting"] for row in rows} == {
        step: sum(reasons.values()) for step, reasons in found.items()
    }
    _check_one_step_alone(connection, run, found)


def _check_one_step_alone(
    connection: Any, run: Run, found: dict[int, dict[str | None, int]]
) -> None:
    """The stretch that is one step says what the whole log says of it."""
    step = run.recorder.steps[len(run.recorder.steps) // 2]
    alone = records(connection, f"FROM queue_by_reason_between({step.ts}, {step.ts})")
    assert by_step(alone).get(step.step) == found.get(step.step)
