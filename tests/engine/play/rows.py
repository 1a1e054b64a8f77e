"""What a run recorded, in a form in which two runs can be compared."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from telemetry.records import Event, StepRow
from telemetry.vocabulary import EventKind

if TYPE_CHECKING:
    from tests.engine.play.player import Player


def rows_of(play: Player) -> list[dict[str, Any]]:
    """Returns what was recorded, without times and without keys that are salted anew each run."""
    recorder = play.recorder
    dense = [
        {"step": step} | {f.name: _listed(getattr(rows, f.name)) for f in fields(rows)}
        for step, rows in recorder.step_requests
    ]
    return [_untimed(row) for row in [*recorder.steps, *recorder.events]] + dense


def _listed(column: npt.NDArray[Any] | None) -> list[int] | None:
    return None if column is None else column.tolist()


def _untimed(row: StepRow | Event) -> dict[str, Any]:
    is_salted = row.__class__ is Event and row.kind == EventKind.item_evicted
    return {
        name: value
        for name, value in asdict(row).items()
        if not name.endswith(("ts", "_ns", "_key", "_keys", "_hashes"))
        and not (is_salted and name == "text")
    } | {"type": type(row).__name__}
