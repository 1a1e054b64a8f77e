"""What is written down of KV that comes from elsewhere, and goes there."""

from __future__ import annotations

from engine.scheduler import ModelRunnerOutput
from telemetry.records import ConnectorEvent, RequestAdmitted
from telemetry.vocabulary import EventKind
from tests.diagnose.logs import MemoryLog
from tests.engine.builders import Run
from tests.engine.test_kv_loads import Connector, run_with, step
from tests.telemetry.log_builder import LogBuilder


def told(run: Run, *kinds: EventKind) -> list[ConnectorEvent]:
    events = [event for event in run.events(ConnectorEvent) if event.kind in kinds]
    return [event for event in events if isinstance(event, ConnectorEvent)]


LOOKUPS = (EventKind.lookup_pending, EventKind.lookup_answered)


def test_an_answer_is_told_when_it_changes() -> None:
    connector = Connector({"a": None}, is_async=False)
    run = run_with(connector)
    run.add("a", prompt=12)
    step(run)
    step(run)
    connector.tokens["a"] = 8
    step(run, ["a"])
    assert [(e.kind, e.step, e.num_tokens) for e in told(run, *LOOKUPS)] == [
        (EventKind.lookup_pending, 0, None),
        (EventKind.lookup_answered, 2, 8),
    ]


def test_an_answer_that_says_the_same_behind_a_longer_hit_is_not_told_again() -> None:
    run = run_with(Connector({"b": 8}, is_async=False), num_usable_blocks=5)
    run.add("a", prompt=range(12))
    run.add("b", prompt=[*range(4), *range(50, 62)])
    step(run, ["a"])
    step(run, ["a"])
    answers = [(e.request, e.num_tokens, e.num_hit_tokens) for e in told(run, *LOOKUPS)]
    assert answers == [(0, 0, 0), (1, 4, 4)]
    run.scheduler.reset_prefix_cache(reset_running=True)
    step(run)
    assert len(told(run, *LOOKUPS)) == 2, "8 tokens behind no hit is 4 behind 4"


def test_failed_blocks_are_told_by_their_places() -> None:
    run = run_with(Connector({"a": 12}))
    request = run.add("a", prompt=16)
    step(run)
    blocks = run.scheduler.kv.block_ids(request)[0]
    step(run, invalid_block_ids=frozenset(blocks[1:]))
    (failed,) = told(run, EventKind.load_failed)
    assert (failed.invalid_blocks, failed.num_invalid_blocks) == ([1, 2], 2)
    assert (failed.num_tokens, failed.policy) == (4, 0)


def test_a_load_that_failed_as_a_whole_names_no_blocks() -> None:
    run = run_with(Connector({"a": 12}))
    run.add("a", prompt=16)
    step(run)
    step(run, failed_recving=frozenset(["a"]))
    (failed,) = told(run, EventKind.load_failed)
    assert (failed.invalid_blocks, failed.num_tokens) == (None, 0)


def test_an_admission_says_what_was_loaded_for_it() -> None:
    run = run_with(Connector({"a": 8}))
    run.add("a", prompt=12)
    step(run, finished_recving=frozenset(["a"]))
    step(run, ["a"])
    (admitted,) = run.events(RequestAdmitted)
    assert isinstance(admitted, RequestAdmitted)
    assert (admitted.num_hit_tokens, admitted.num_external_tokens, admitted.is_async) == (0, 8, 1)


def test_what_a_resumed_request_regained_from_a_connector_is_counted() -> None:
    connector = Connector()
    run = run_with(connector, enable_prefix_caching=False)
    run.add("a", prompt=12, max_tokens=2)
    step(run, ["a"])
    connector.tokens["a"] = 8
    run.scheduler.reset_prefix_cache(reset_running=True)
    output = run.scheduler.schedule()
    assert output.kv_loads_started == {"a": (8, 0, 8)}
    run.scheduler.update_from_output(output, ModelRunnerOutput(finished_recving=frozenset(["a"])))
    step(run, ["a"])
    log = MemoryLog([LogBuilder.of_recorder(run.recorder)])
    (row,) = log.query("SELECT * FROM preemptions").to_pylist()
    assert row["num_tokens_regained_from_connector"] == 8
    assert row["num_computed_tokens_lost"] == 12 == 8 + row["num_tokens_recomputed"]
