"""Every scheduled token of a real run is told, once: useful, recomputed, rejected or padding."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from diagnose.accounting import account
from diagnose.reading import Scope
from diagnose.window import choose_window
from tests.conformance import Replayer, find_vectors
from tests.diagnose.logs import MemoryLog, log_of
from tests.telemetry.log_builder import LogBuilder

DATA = Path(__file__).parents[1] / "data" / "vectors"
KINDS = (
    "chunked_prefill",
    "preempt_fcfs",
    "preempt_priority",
    "prefix_cache",
    "spec_decode",
    "async_scheduling",
    "kv_connector",
    "async_connector",
    "connector_more",
    "encoder",
    "session_more",
    "structured_output",
    "hybrid_kv",
)
PARTS_SQL = """
SELECT step, num_scheduled_tokens AS scheduled,
       [num_useful_prefill_tokens, num_useful_decode_tokens, num_recomputed_tokens,
        num_rejected_draft_tokens, num_padding_tokens] AS parts
FROM token_work ORDER BY step
"""
DENSE_SQL = """
SELECT request, num_computed_tokens::BIGINT AS start, num_drafts::BIGINT AS num_drafts,
       num_scheduled_tokens::BIGINT AS num_tokens, coalesce(num_accepted, 0)::BIGINT AS num_accepted
FROM step_requests WHERE num_scheduled_tokens > 0 ORDER BY step, slot
"""


def recorded(vector: dict[str, object]) -> MemoryLog:
    replayer = Replayer(vector)
    replayer.run()
    replayer.scheduler.journal.flush()
    return log_of(LogBuilder.of_recorder(replayer.recorder))


def computed_twice(log: MemoryLog) -> int:
    """Tokens at positions that their request had reached before: counted from who got what."""
    reached: Counter[int] = Counter()
    again = 0
    for row in log.query(DENSE_SQL).to_pylist():
        end = row["start"] + row["num_tokens"] - row["num_drafts"]
        again += max(0, min(end, reached[row["request"]]) - row["start"])
        reached[row["request"]] = max(reached[row["request"]], end + row["num_accepted"])
    return again


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_are_all_of_each_step(kind: str) -> None:
    num_steps = 0
    for name, vector in islice(find_vectors([DATA / kind]), 5):
        for row in recorded(vector).query(PARTS_SQL).to_pylist():
            assert all(part is not None and part >= 0 for part in row["parts"]), (name, row)
            assert sum(row["parts"]) == row["scheduled"], (name, row)
            num_steps += 1
    assert num_steps


@pytest.mark.parametrize("kind", ["preempt_fcfs", "preempt_priority", "chunked_prefill"])
def test_recomputed_tokens_are_those_at_positions_reached_before(kind: str) -> None:
    total = 0
    for name, vector in islice(find_vectors([DATA / kind]), 5):
        log = recorded(vector)
        rows = log.query("SELECT num_recomputed_tokens AS n FROM token_work").to_pylist()
        assert sum(row["n"] for row in rows) == computed_twice(log), name
        total += computed_twice(log)
    assert total or kind == "chunked_prefill"


def test_drafts_that_the_runner_fills_are_no_padding() -> None:
    log = recorded(dict(find_vectors([DATA / "async_scheduling"]))["async_scheduling/spec"])
    sums = "SELECT sum(num_padding_tokens)::INT AS p, sum(num_draft_tokens)::INT AS d FROM steps"
    row = log.query(sums).to_pylist()[0]
    assert row["p"] == 0
    assert row["d"] > 0


def test_a_window_with_drafts_in_flight_says_how_many_tokens_are_not_told_yet() -> None:
    log = log_of(
        LogBuilder()
        .described()
        .step(
            num_scheduled_tokens=9,
            num_prefill_tokens=0,
            num_decode_tokens=3,
            num_recomputed_tokens=0,
            num_draft_tokens=6,
            num_padding_tokens=0,
            updated_ts=None,
        )
    )
    window = choose_window(log)
    work = account(log, Scope(1, window.start_ts, window.end_ts), saw_start=True).work
    assert work.num_unattributed == 6
    assert work.adds_up is False
