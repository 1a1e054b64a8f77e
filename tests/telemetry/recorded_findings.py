"""The findings of the recorded incident: rules looked now and then, people said something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnose.diagnosis import diagnose
from diagnose.life.look import Look, look_at
from diagnose.life.machine import Life, observe
from diagnose.life.rows import row_of
from diagnose.life.sayings import Saying, Target
from diagnose.life.state import read_states
from diagnose.reading import NS
from diagnose.window import choose_window
from telemetry.store import open_log
from telemetry.store.posting import checked, write_findings
from telemetry.store.writer import LogWriter

PRESSURE = "kv-preemption-pressure"
LOOK_NS = 30 * NS


def record_findings(directory: Path, day: str) -> None:
    """Writes the changes that an analyst would have told of a recorded day, and two sayings."""
    lives: dict[str, Life] = {}
    said_ts = 0
    for end_ts in _moments(directory):
        lives, changes = observe(lives, _look(directory, end_ts))
        _write(directory, day, [row_of(change) for change in changes])
        if changes and not said_ts:
            said_ts = end_ts + NS
            _write(directory, day, _said(directory, said_ts))


def _moments(directory: Path) -> range:
    """Returns when it is looked: as long as the log goes on, and for a while after."""
    with open_log(directory) as log:
        whole = choose_window(log)
    return range(whole.start_ts + LOOK_NS, whole.end_ts + 3 * LOOK_NS, LOOK_NS)


def _look(directory: Path, ts: int) -> Look:
    with open_log(directory) as log:
        whole = choose_window(log)
        window = replace(whole, end_ts=min(ts, whole.end_ts))
        return look_at(diagnose(log, window, effort="none"), ts)


def _said(directory: Path, ts: int) -> list[dict[str, Any]]:
    with open_log(directory) as log:
        state = next(state for state in read_states(log) if state.rule == PRESSURE)
    known = Saying(author="dana", note="known: the new tenant", ts=ts)
    quiet = Saying(author="lee", note="until the pool is larger", ts=ts + NS)
    target = Target("lora-slot-contention", None)
    return [known.acknowledge(state), quiet.silence(target, 2 * 3600 * NS)]


def _write(directory: Path, day: str, rows: list[dict[str, Any]]) -> None:
    writer = LogWriter(directory, [day], dense=False)
    write_findings(writer, checked(rows) if rows else [], day)
    writer.close()
