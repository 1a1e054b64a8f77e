"""The record of a replay is the record that it was made from, whatever happened in the run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hypothesis import given

from diagnose.replay import Replay, TakenIn, read_inputs
from telemetry.recorder import ListRecorder
from telemetry.records import EngineRow
from telemetry.vocabulary import EventKind
from tests.diagnose.logs import MemoryLog
from tests.engine.play.player import Player
from tests.engine.play.scenario import Scenario, scenarios
from tests.engine.test_scheduler_properties import BOTH_PATHS, examples
from tests.telemetry.log_builder import LogBuilder


@BOTH_PATHS
@examples(60)
@given(scenarios())
def test_a_replay_records_what_was_recorded(array_path: bool, scenario: Scenario) -> None:
    play = Player(scenario, array_path=array_path).run()
    play.scheduler.journal.flush()
    play.recorder.describe_engine(EngineRow(settings=scenario.config.to_json()))
    log = MemoryLog([LogBuilder.of_recorder(play.recorder)])
    again = ListRecorder()
    replay = Replay(read_inputs(log, engine=1), recorder=again, array_path=not array_path)
    for step in replay.run():
        if isinstance(step, TakenIn):
            replay.scheduler.check_integrity()
    replay.scheduler.journal.flush()
    assert_equal(rows_of(play.recorder), rows_of(again))


def assert_equal(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    for index, (first, second) in enumerate(zip(one, other, strict=False)):
        assert first == second, f"row {index}"
    assert len(one) == len(other)


def rows_of(recorder: ListRecorder) -> list[dict[str, Any]]:
    """Returns steps and events without times, and without keys that are salted anew each run."""
    rows = [asdict(row) | {"type": type(row).__name__} for row in recorder.steps + recorder.events]
    for row in rows:
        if row.get("kind") == EventKind.item_evicted:
            del row["text"]
    salted = ("ts", "_ns", "_key", "_keys", "_hashes")
    return [{n: v for n, v in row.items() if not n.endswith(salted)} for row in rows]
