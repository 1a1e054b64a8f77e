"""The replays behind the What-if page, kept: one load is replayed once, whoever turns the knob.

What is kept hangs on the load alone (log and its state, engine, window, how clients behave) and on
what is changed. Nothing here draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard import source, whatif_data
from dashboard.session import Page
from dashboard.whatif_data import SCAN_REPLAYS, Course
from diagnose.reading import Scope
from diagnose.replay.edits import with_clients
from diagnose.replay.prediction import NUM_REPLAYS, Prediction, Replays, predict
from diagnose.replay.recorded_load import read_workload
from diagnose.replay.smallest import Step, smallest_changes
from diagnose.replay.workload import Workload
from telemetry.store import Log

DETECTED = "detected"
"""Clients that behave as the record shows."""
Key = tuple[str, source.Stamp | None, int, int | None, int, str]
"""What a load is known by: log, its state, engine, window, how clients behave."""


@dataclass(frozen=True, slots=True)
class Load:
    """A recorded load, and what it is known by."""

    key: Key
    workload: Workload

    def course(self, name: str) -> Course:
        """Returns one setting at the values that are tried."""
        return _course(self.key, name, self.workload, self._replays(SCAN_REPLAYS))

    def prediction(self, name: str, value: Any) -> Prediction:
        """Returns what one value of a setting would do."""
        return _prediction(self.key, name, value, self.workload)

    def smallest(self) -> list[Step]:
        """Returns the smallest changes tried that remove half, 80 %, all of the preemptions."""
        return _smallest(self.key, self.workload, self._replays(SCAN_REPLAYS))

    def _replays(self, number: int) -> Replays:
        return _replays(self.key, number, self.workload)


def read_load(page: Page, scope: Scope, clients: str = DETECTED) -> Load:
    """Returns the load of a window.

    Args:
        page: the log, and whether it still grows.
        scope: engine and window.
        clients: `detected`, `open`, `closed` or `closed:N`.

    Raises:
        ReplayError: the window holds no load that can be replayed; the message says why.
    """
    is_whole = not page.is_live and not page.is_pinned
    stamp = None if page.is_live else source.stamp_of(page.path)
    start = None if is_whole else scope.start_ts
    key = (str(page.path), stamp, scope.engine, start, scope.end_ts, clients)
    return Load(key, _load(key, page.log))


@st.cache_resource(show_spinner="Reading the load …", max_entries=8)
def _load(key: Key, _log: Log) -> Workload:
    _, _, engine, start_ts, end_ts, clients = key
    workload = read_workload(_log, engine, start_ts, end_ts)
    kind, _, number = clients.partition(":")
    match kind:
        case "open" | "closed":
            return with_clients(workload, kind, int(number) if number else None)
    return workload


@st.cache_resource(show_spinner="Replaying it as it was …", max_entries=16)
def _replays(key: Key, number: int, _workload: Workload) -> Replays:
    return Replays.of(_workload, number)


@st.cache_resource(show_spinner="Replaying it at other values …", max_entries=32)
def _course(key: Key, name: str, _workload: Workload, _before: Replays) -> Course:
    return whatif_data.read_course(_workload, name, _before)


@st.cache_resource(show_spinner="Replaying the chosen value …", max_entries=64)
def _prediction(key: Key, name: str, value: Any, _workload: Workload) -> Prediction:
    return predict(_workload, {name: value}, before=_replays(key, NUM_REPLAYS, _workload))


@st.cache_resource(show_spinner="Looking for the smallest changes …", max_entries=16)
def _smallest(key: Key, _workload: Workload, _before: Replays) -> list[Step]:
    return smallest_changes(_workload, num_replays=SCAN_REPLAYS, before=_before)
