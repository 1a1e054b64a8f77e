"""Runs that are recorded and replayed, and their records side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from diagnose.replay import Replay, TakenIn, read_inputs
from engine.config import EngineConfig
from telemetry.recorder import ListRecorder
from telemetry.records import EngineRow
from telemetry.vocabulary import EventKind
from tests.diagnose.logs import MemoryLog
from tests.telemetry.log_builder import LogBuilder

_SALTED = ("ts", "_ns", "_key", "_keys", "_hashes")
_CLOCKED = (EventKind.load_timed_out, EventKind.ack_timed_out, EventKind.lease_expired)


def log_of_run(recorder: ListRecorder, config: EngineConfig) -> MemoryLog:
    """Returns the step log that a run's rows become."""
    recorder.describe_engine(EngineRow(settings=config.to_json()))
    return MemoryLog([LogBuilder.of_recorder(recorder)])


def record_of_replay(log: MemoryLog, *, array_path: bool = True) -> ListRecorder:
    """Returns what a replay records, whose integrity is checked after each step."""
    again = ListRecorder()
    replay = Replay(read_inputs(log, engine=1), recorder=again, array_path=array_path)
    for step in replay.run():
        if isinstance(step, TakenIn):
            replay.scheduler.check_integrity()
    replay.scheduler.journal.flush()
    return again


def assert_replays(recorder: ListRecorder, config: EngineConfig, **settings: bool) -> None:
    """Compares the record of a run with the record of its replay."""
    again = record_of_replay(log_of_run(recorder, config), **settings)
    first, second = rows_of(recorder), rows_of(again)
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        assert one == other, f"row {index}"
    assert len(first) == len(second)


def rows_of(recorder: ListRecorder) -> list[dict[str, Any]]:
    """Returns steps and events but for times, what is salted anew, and what a clock decided.

    A replay takes time-outs from the record, and does not tell again that a peer is late.
    """
    rows = [asdict(row) | {"type": type(row).__name__} for row in recorder.steps + recorder.events]
    rows = [row for row in rows if row.get("kind") not in _CLOCKED]
    for row in rows:
        if row.get("kind") == EventKind.item_evicted or row.get("connector") == "encoder":
            del row["text"]
    return [{n: v for n, v in row.items() if not n.endswith(_SALTED)} for row in rows]
