"""What one log answers to the pages. A closed log's answers are kept; a live one is asked anew,
but for a diagnosis that one drawing asks for twice.

They are kept for all visitors, by the log as it lies on disk, by statement, or by engine, window
and effort. Which of them a page asks for is `session`'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import source
from dashboard.starts import EngineStart, read_engines
from diagnose.causes.attribution import Effort
from diagnose.changes import Explanation
from diagnose.diagnosis import Diagnosis, diagnose, read_context
from diagnose.reading import Scope
from diagnose.user_rules.loading import chosen_rules
from diagnose.window import Window
from telemetry.store import Log, open_log

MAX_LOGS = 8
MAX_FRAMES = 400
MAX_DIAGNOSES = 40
MAX_LIVE_DIAGNOSES = 8
LIVE_SECONDS = 2
"""How long a diagnosis of a live window is told again: a window may end in what is to come."""
MAX_REPLAYED = MAX_DIAGNOSES // 2
"""Windows known to be worked out: each has two diagnoses, and both should still be there."""

Explained = tuple[Explanation, int]
"""Every candidate for the cause of the worst storm, and the number of preemptions in it."""
ClosedWindow = tuple[str, source.Stamp, tuple[int, int, int]]
"""A closed log as it lies on disk, and an engine, start and end in it."""


@st.cache_resource(show_spinner=False, max_entries=MAX_LOGS, on_release=lambda log: log.close())
def opened(path: str) -> Log:
    """Returns a log, which stays open for all who look at it."""
    return open_log(Path(path))


@dataclass(frozen=True, slots=True)
class Answers:
    """What a log answers; the same questions have the same answers while it is closed."""

    log: Log
    path: Path
    is_live: bool

    def engines(self) -> tuple[EngineStart, ...]:
        """Returns its engine starts, newest first."""
        return read_engines(self.log) if self.is_live else _engines(*self._as_it_lies, self.log)

    def rows(self, sql: str, params: dict[str, Any] | None) -> pd.DataFrame:
        """Returns the rows of one statement."""
        if self.is_live:
            return _ask(self.log, sql, params)
        return _frame(*self._as_it_lies, sql, json.dumps(params, sort_keys=True), self.log)

    def diagnosis(self, scope: Scope, effort: Effort) -> Diagnosis:
        """Returns what the rules say of one engine in a window."""
        if self.is_live:
            key = (scope.engine, scope.start_ts, scope.end_ts)
            return _live_diagnosis(str(self.path), key, effort, self.log)
        return _diagnosis(*self.closed_window(scope), effort, self.log)

    def explanation(self, scope: Scope, effort: Effort) -> Explained | None:
        """Returns what may have caused the worst storm of a window; None without one."""
        if self.is_live:
            return _explain(self.log, scope, effort)
        return _explanation(*self.closed_window(scope), effort, self.log)

    def replay(self, scope: Scope) -> None:
        """Replays the load of a closed log's window, for every visitor who looks at it."""
        window, known = self.closed_window(scope), _replayed()
        self.diagnosis(scope, "usual")
        self.explanation(scope, "usual")
        known[window] = None
        while len(known) > MAX_REPLAYED:
            known.pop(next(iter(known)), None)

    def is_replayed(self, scope: Scope) -> bool:
        """Whether the load of a window has been replayed; that of a live log never is."""
        return not self.is_live and self.closed_window(scope) in _replayed()

    def closed_window(self, scope: Scope) -> ClosedWindow:
        """Returns what all that is known of a window of a closed log hangs on."""
        return *self._as_it_lies, (scope.engine, scope.start_ts, scope.end_ts)

    @property
    def _as_it_lies(self) -> tuple[str, source.Stamp]:
        return str(self.path), source.stamp_of(self.path)


def _ask(log: Log, sql: str, params: dict[str, Any] | None) -> pd.DataFrame:
    return log.query(sql, params).to_pandas()


def _diagnose(log: Log, scope: Scope, effort: Effort) -> Diagnosis:
    window = Window(start_ts=scope.start_ts, end_ts=scope.end_ts)
    rules = chosen_rules(None, log.target)
    return diagnose(log, window, engines=[scope.engine], rules=rules, effort=effort)


def _explain(log: Log, scope: Scope, effort: Effort) -> Explained | None:
    window = Window(start_ts=scope.start_ts, end_ts=scope.end_ts)
    storm = read_context(log, window, scope.engine, effort).storm
    return None if storm is None else (storm.explanation, storm.account.num_rows)


# ------------------------------------------------------------------------------------ what is kept


@st.cache_data(show_spinner=False, max_entries=MAX_LOGS)
def _engines(path: str, stamp: source.Stamp, _log: Log) -> tuple[EngineStart, ...]:
    return read_engines(_log)


@st.cache_data(show_spinner=False, max_entries=MAX_FRAMES)
def _frame(path: str, stamp: source.Stamp, sql: str, given: str, _log: Log) -> pd.DataFrame:
    return _ask(_log, sql, json.loads(given))


@st.cache_data(show_spinner=False, max_entries=MAX_DIAGNOSES)
def _diagnosis(
    path: str, stamp: source.Stamp, key: tuple[int, int, int], effort: Effort, _log: Log
) -> Diagnosis:
    return _diagnose(_log, Scope(*key), effort)


@st.cache_data(show_spinner=False, max_entries=MAX_LIVE_DIAGNOSES, ttl=LIVE_SECONDS)
def _live_diagnosis(path: str, key: tuple[int, int, int], effort: Effort, _log: Log) -> Diagnosis:
    return _diagnose(_log, Scope(*key), effort)


@st.cache_data(show_spinner=False, max_entries=MAX_DIAGNOSES)
def _explanation(
    path: str, stamp: source.Stamp, key: tuple[int, int, int], effort: Effort, _log: Log
) -> Explained | None:
    return _explain(_log, Scope(*key), effort)


@st.cache_resource(show_spinner=False)
def _replayed() -> dict[ClosedWindow, None]:
    """Returns the windows whose load has been replayed, oldest first."""
    return {}
