"""Where the tokens of a preemption went: by hand, and in every run of the real scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.vocabulary import FinishReason, PreemptionCause, VictimRule
from tests.engine.builders import Run, config
from tests.telemetry.log_builder import MS, LogBuilder, connect, insert, records, truncate

PARTS = (
    "num_tokens_recomputed",
    "num_tokens_regained_from_prefix_cache",
    "num_tokens_regained_from_connector",
    "num_tokens_lost_again",
    "num_tokens_never_resumed",
    "num_tokens_pending",
)


def preemptions(*logs: LogBuilder) -> list[dict[str, Any]]:
    return records(connect(*logs), "FROM preemptions ORDER BY engine, seq")


def parts(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in PARTS)


def preempted_log(lost: int = 40) -> LogBuilder:
    """A request that has lost `lost` tokens to request 1."""
    log = LogBuilder().arrived(0).arrived(1).step().admitted(0).admitted(1)
    return log.first_token(0).step().preempted(0, lost=lost, beneficiary=1)


def test_a_preemption_says_who_lost_what_to_whom() -> None:
    log = LogBuilder().arrived(7, request_id="mine").step()
    log.preempted(
        7,
        lost=40,
        beneficiary=3,
        cause=PreemptionCause.priority,
        victim_rule=VictimRule.lowest_priority,
        num_withdrawn_tokens=5,
        was_prefill=1,
    )
    (row,) = preemptions(log)
    assert (row["request"], row["request_id"], row["beneficiary"]) == (7, "mine", 3)
    assert (row["cause"], row["victim_rule"]) == ("priority", "lowest_priority")
    assert (row["beneficiary_allocated"], row["was_prefill"]) == (True, True)
    assert (row["num_computed_tokens_lost"], row["num_withdrawn_tokens"], row["nth"]) == (40, 5, 1)


def test_a_victim_that_is_still_out_is_pending() -> None:
    (row,) = preemptions(preempted_log())
    assert row["outcome"] == "pending"
    assert (row["resumed_ts"], row["out_ns"]) == (None, None)
    assert parts(row) == (0, 0, 0, 0, 0, 40)


def test_a_victim_that_ends_while_out_never_resumed() -> None:
    (row,) = preemptions(preempted_log().step().aborted(0))
    assert row["outcome"] == "never_resumed"
    assert parts(row) == (0, 0, 0, 0, 40, 0)


def test_hits_at_the_resumption_are_regained_and_the_rest_is_recomputed() -> None:
    log = preempted_log().step().resumed(0, hit=16, num_external_tokens=8, num_scheduled_tokens=17)
    (row,) = preemptions(log.caught_up(0))
    assert (row["outcome"], row["out_ns"], row["resumed_step"]) == ("resumed", 10 * MS, 2)
    assert parts(row) == (16, 16, 8, 0, 0, 0)


def test_hits_beyond_what_was_ever_computed_are_no_regain() -> None:
    log = preempted_log().step().resumed(0, hit=32, num_external_tokens=32, num_scheduled_tokens=1)
    (row,) = preemptions(log.caught_up(0))
    assert parts(row) == (0, 32, 8, 0, 0, 0)


def test_without_dense_rows_only_the_first_chunk_is_certain() -> None:
    log = preempted_log().step().resumed(0, hit=0, num_scheduled_tokens=10)
    (row,) = preemptions(log.step().step())
    assert parts(row) == (10, 0, 0, 0, 0, 30)


def test_with_dense_rows_the_newest_progress_counts() -> None:
    log = preempted_log().step().resumed(0, hit=0, num_scheduled_tokens=10)
    log.step(requests=[{"request": 0, "num_computed_tokens": 10, "num_scheduled_tokens": 10}])
    log.step(requests=[{"request": 0, "num_computed_tokens": 20, "num_scheduled_tokens": 5}])
    (row,) = preemptions(log)
    assert parts(row) == (25, 0, 0, 0, 0, 15)


def test_a_request_that_ends_in_the_middle_of_recomputing_never_gets_the_rest() -> None:
    log = preempted_log().step().resumed(0, hit=0, num_scheduled_tokens=10)
    log.step().finished(0, FinishReason.abort_client, num_computed_tokens=30)
    (row,) = preemptions(log)
    assert row["outcome"] == "resumed"
    assert parts(row) == (30, 0, 0, 0, 10, 0)


def test_what_is_missing_at_the_next_loss_is_lost_again_and_taken_over() -> None:
    """100 lost, 30 of them computed again and lost once more, then all 100 computed again."""
    log = preempted_log(lost=100).step().resumed(0, hit=0, num_scheduled_tokens=30)
    log.step().preempted(0, lost=30, beneficiary=1)
    log.step().resumed(0, hit=0, num_scheduled_tokens=101).caught_up(0)
    first, second = preemptions(log)
    assert parts(first) == (30, 0, 0, 70, 0, 0)
    assert parts(second) == (100, 0, 0, -70, 0, 0)
    assert second["nth"] == 2


def test_a_source_that_does_not_know_the_loss_leaves_the_parts_open() -> None:
    log = preempted_log()
    log.rows["request_events"][-1]["num_computed_tokens_lost"] = None
    (row,) = preemptions(log)
    assert parts(row) == (None,) * 6


def test_engines_with_equal_request_numbers_are_kept_apart() -> None:
    other = LogBuilder(engine=2**64 - 1)
    other.step().preempted(0, lost=8).step().resumed(0, hit=8).caught_up(0)
    rows = preemptions(preempted_log(), other)
    assert [parts(row) for row in rows] == [(0, 0, 0, 0, 0, 40), (0, 8, 0, 0, 0, 0)]


# ------------------------------------------------------------------- runs of the real scheduler

RUNS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["fcfs", "priority"]),
        "num_usable_blocks": st.integers(16, 28),
        "block_size": st.sampled_from([1, 2]),
        "max_num_seqs": st.integers(2, 8),
        "max_num_batched_tokens": st.integers(2, 12),
        "enable_prefix_caching": st.booleans(),
        "scheduler_reserve_full_isl": st.booleans(),
    }
)
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 6),  # arrives before this step
        st.integers(1, 6),  # prompt tokens
        st.integers(4, 10),  # output tokens
        st.integers(0, 2),  # priority
        st.one_of(st.none(), st.integers(1, 20)),  # aborted so many steps later
    ),
    min_size=3,
    max_size=10,
)


def played(limits: dict[str, Any], requests: list[tuple[Any, ...]], num_steps: int) -> Run:
    """Returns a run of the scheduler, stopped after `num_steps`."""
    run = Run(config(**limits))
    for step in range(num_steps):
        for number, (arrives, prompt, max_tokens, priority, aborts) in enumerate(requests):
            name = f"r{number}"
            if arrives == step:
                run.add(name, prompt=prompt, max_tokens=max_tokens, priority=priority)
            if aborts is not None and arrives + aborts == step:
                run.scheduler.finish_requests([name], FinishReason.abort_client)
        if step > 6 and not run.scheduler.has_requests():
            break
        run.step()
    return run


@pytest.fixture(scope="module")
def log_connection() -> Any:
    """One connection for all examples: a view is as good on the next rows."""
    return connect()


@settings(max_examples=40, deadline=None)
@given(RUNS, REQUESTS, st.integers(4, 120))
def test_every_row_accounts_for_its_loss_and_all_for_the_recomputed_tokens(
    log_connection: Any, limits: dict[str, Any], requests: list[tuple[Any, ...]], num_steps: int
) -> None:
    run = played(limits, requests, num_steps)
    rows = stored(log_connection, run)
    assert len(rows) == run.scheduler.num_preemptions
    for row in rows:
        assert sum(parts(row)) == row["num_computed_tokens_lost"], row
    recomputed = sum(row["num_tokens_recomputed"] for row in rows)
    assert recomputed == sum(step.num_recomputed_tokens or 0 for step in run.recorder.steps)
    lost_again = sum(row["num_tokens_lost_again"] for row in rows)
    ended = not run.scheduler.has_requests()
    assert not ended or lost_again == 0
    assert not ended or all(row["outcome"] != "pending" for row in rows)


def stored(connection: Any, run: Run) -> list[dict[str, Any]]:
    """Returns the preemptions of a run, with its rows put in place of the ones before."""
    truncate(connection)
    insert(connection, LogBuilder.of_recorder(run.recorder))
    return records(connection, "FROM preemptions ORDER BY seq")
