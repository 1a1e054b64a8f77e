"""Two hundred random runs of vLLM's own scheduler: the record says what vLLM's outputs say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from telemetry.recorder import ListRecorder
from telemetry.records import StepRow
from telemetry.vocabulary import EventKind
from tests.telemetry.log_builder import LogBuilder, connect, records
from tests.telemetry.sources.vllm.conftest import Lab
from tests.telemetry.sources.vllm.lab_runs import RandomResult
from tests.telemetry.sources.vllm.what_happened import StepTruth

LOST_AND_FOUND = """
SELECT sum(num_computed_tokens_lost)::BIGINT AS lost,
       sum(num_tokens_recomputed + num_tokens_regained_from_prefix_cache
           + num_tokens_regained_from_connector + num_tokens_lost_again
           + num_tokens_never_resumed + num_tokens_pending)::BIGINT AS found,
       count(*) AS num_rows
FROM preemptions GROUP BY engine ORDER BY engine
"""


def names(recorder: ListRecorder) -> dict[int, str]:
    """Returns vLLM's id of each request, by its number in the record."""
    arrivals = (event for event in recorder.events if event.kind == EventKind.arrived)
    return {event.request: event.request_id for event in arrivals}  # type: ignore[attr-defined]


def rows(recorder: ListRecorder) -> dict[int, StepRow]:
    """Returns the row that each step is told in."""
    return {row.step + i: row for row in recorder.steps for i in range(row.num_repeats)}


def steps(lab: Lab) -> Iterator[tuple[StepRow, StepTruth]]:
    """Yields each step of all runs, as it was recorded and as it was."""
    for run in lab.runs.random.values():
        recorded = rows(run.recorder)
        assert recorded.keys() == set(range(len(run.truth)))
        for number, truth in enumerate(run.truth):
            yield recorded[number], truth


@pytest.fixture(scope="module")
def log(lab: Lab) -> duckdb.DuckDBPyConnection:
    """Returns a step log with all runs in it."""
    runs = lab.runs.random.items()
    return connect(*(LogBuilder.of_recorder(run.recorder, 1 + seed) for seed, run in runs))


def test_nothing_went_wrong_in_any_run(lab: Lab) -> None:
    assert len(lab.runs.random) == 200
    assert [run.recorder.errors for run in lab.runs.random.values() if run.recorder.errors] == []
    assert all(run.recorder.closed for run in lab.runs.random.values())


def test_steps_say_how_many_tokens_were_scheduled(lab: Lab) -> None:
    for row, truth in steps(lab):
        assert row.num_scheduled_tokens == sum(truth.scheduled.values())


def test_dense_rows_say_who_was_given_how_many_tokens(lab: Lab) -> None:
    for run in lab.runs.random.values():
        known = names(run.recorder)
        for step, dense in run.recorder.step_requests:
            assert dense.num_scheduled_tokens is not None
            given = zip(dense.request.tolist(), dense.num_scheduled_tokens.tolist(), strict=True)
            seen = {known[number]: tokens for number, tokens in given if tokens}
            assert seen == run.truth[step].scheduled


def test_every_scheduled_token_is_of_one_kind(lab: Lab) -> None:
    for row, _ in steps(lab):
        parts = (
            row.num_prefill_tokens,
            row.num_decode_tokens,
            row.num_recomputed_tokens,
            row.num_draft_tokens,
            row.num_padding_tokens,
        )
        assert all(part is not None and part >= 0 for part in parts)
        assert sum(part or 0 for part in parts) == row.num_scheduled_tokens


def test_free_blocks_are_counted_exactly(lab: Lab) -> None:
    for row, truth in steps(lab):
        assert row.num_blocks_free_cached == truth.num_free_cached
        assert row.num_blocks_free_unhashed == truth.num_free - truth.num_free_cached


def test_every_preemption_is_told_with_what_was_lost(lab: Lab) -> None:
    total = 0
    for run in lab.runs.random.values():
        known = names(run.recorder)
        told = [
            (known[event.request or 0], event.num_computed_tokens_lost)  # type: ignore[attr-defined]
            for event in run.recorder.events
            if event.kind == EventKind.preempted
        ]
        assert told == [each for truth in run.truth for each in truth.preempted]
        assert run.recorder.num_preemptions == len(told)
        total += len(told)
    assert total > 500


def finishes(run: RandomResult) -> Counter[str]:
    known = names(run.recorder)
    ends = [event for event in run.recorder.events if event.kind == EventKind.finished]
    return Counter(known[event.request or 0] for event in ends)


def test_every_request_ends_exactly_once(lab: Lab) -> None:
    for run in lab.runs.random.values():
        assert finishes(run) == Counter(names(run.recorder).values())


def test_ends_are_those_that_vllm_handed_out(lab: Lab) -> None:
    words = {"stop": {"stop"}, "length": {"length"}, "error": {"error"}}
    for run in lab.runs.random.values():
        known = names(run.recorder)
        reasons = {
            known[event.request or 0]: event.reason
            for event in run.recorder.events
            if event.kind == EventKind.finished
        }
        for truth in run.truth:
            for name, reason in truth.finished:
                assert {reasons[name].name} == words[reason.lower().rpartition(".")[2]]  # type: ignore[union-attr]


def test_all_lost_tokens_are_accounted_for(lab: Lab, log: duckdb.DuckDBPyConnection) -> None:
    accounts = records(log, LOST_AND_FOUND)
    counters = [run.recorder.num_preemptions for run in lab.runs.random.values()]
    assert sum(account["num_rows"] for account in accounts) == sum(counters)
    assert all(account["lost"] == account["found"] for account in accounts)


def test_recomputed_tokens_of_steps_are_those_of_preemptions(
    lab: Lab, log: duckdb.DuckDBPyConnection
) -> None:
    """Where all that is in flight is computed in the end: what is dropped is not done again."""
    plain = [1 + seed for seed, run in lab.runs.random.items() if not run.counts_ahead]
    by_step, by_loss = (
        log.execute(
            f"SELECT sum({column})::BIGINT FROM {table} WHERE engine IN (SELECT unnest(?))",
            [plain],
        ).fetchone()
        for column, table in (
            ("num_recomputed_tokens", "steps"),
            ("num_tokens_recomputed", "preemptions"),
        )
    )
    assert by_step == by_loss


def test_everybody_who_waits_has_one_reason_in_each_step(
    lab: Lab, log: duckdb.DuckDBPyConnection
) -> None:
    seen: dict[tuple[int, int], list[tuple[int, str | None]]] = defaultdict(list)
    columns = "engine, step, num_repeats, request, wait_reason"
    for engine, step, num_repeats, request, reason in log.execute(
        f"SELECT {columns} FROM wait_reasons"
    ).fetchall():
        for repeat in range(num_repeats):
            seen[engine - 1, step + repeat].append((request, reason))
    reasons: set[str | None] = set()
    for seed, run in lab.runs.random.items():
        known = names(run.recorder)
        for number, truth in enumerate(run.truth):
            found = seen[seed, number]
            assert sorted(known[request] for request, _ in found) == sorted(truth.waiting)
            reasons.update(reason for _, reason in found)
    assert None not in reasons
    assert {"behind_head", "not_visited", "lora_slots", "kv_watermark", "load_started"} <= reasons


def test_no_text_of_a_prompt_is_in_the_record(lab: Lab) -> None:
    """Errors of grammars, ids of tokens and vLLM's own block hashes stay out of it."""
    for run in lab.runs.random.values():
        for event in run.recorder.events:
            text: Any = event.text
            assert text is None or "wrong" not in text
