"""What a page shows: the log, the engine, the window; and the address that says so.

A page asks `open_page()` on every run. Closed logs answer from a cache keyed by log, window and
query; a live one is asked each time. The address is read first and written back, so that it
survives a change of page.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import address, source
from dashboard.colours import Theme
from dashboard.starts import EngineStart, engine_label, one_row, read_engines
from diagnose.causes.attribution import Effort
from diagnose.changes import Explanation
from diagnose.diagnosis import Diagnosis, EngineDiagnosis, diagnose, read_context
from diagnose.reading import Scope
from diagnose.user_rules.loading import chosen_rules
from diagnose.window import LIVE_WINDOW_NS, Window
from telemetry.store import Log, open_log

KEPT = ("log", "engine", "from", "to")
"""Parts of the address that survive a change of page."""
DEFAULT_WIDTH = 1384
"""Pixels between the margins of a page at 1440 px."""
MIN_WIDTH, MAX_WIDTH = 240, 8_000
"""Widths that a browser is believed."""
WIDTH = "page_width"
WIDTH_COOKIE = "stepscope_page_width"
"""Where a session keeps its page's width, and where a browser does until its next visit."""
MAX_CACHED = 400
WAS_LIVE = "was_live"
MAX_DIAGNOSES = 40
MAX_REPLAYED = MAX_DIAGNOSES // 2
"""Windows known to be worked out: each has two diagnoses, and both should still be there."""

ClosedWindow = tuple[str, source.Stamp, tuple[int, int, int]]
"""A closed log as it lies on disk, and an engine, start and end in it."""


@dataclass(frozen=True)
class Page:
    """What one run of a page shows."""

    log: Log
    path: Path
    name: str | None
    is_live: bool
    is_pinned: bool
    """The window comes from the address: a live page is paused."""
    is_lost: bool
    """This visit saw it live, its engine has not said goodbye, and nobody collects it now."""
    engines: tuple[EngineStart, ...]
    engine: EngineStart
    scope: Scope
    theme: Theme
    width: int
    effort: Effort
    """How much is replayed. Nothing on a live log, and nothing on the first look at a closed one:
    a replay takes seconds, so the page shows what it knows and the rest follows (`replaying`)."""

    def ask(self, sql: str, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Returns the rows of one statement."""
        if self.is_live:
            return _frame(self.log, sql, params)
        given = json.dumps(params, sort_keys=True)
        return _cached_frame(str(self.path), source.stamp_of(self.path), sql, given, self.log)

    def row(self, sql: str) -> dict[str, Any]:
        """Returns the one row of an aggregate; what is NULL is None."""
        return one_row(self.ask(sql))

    def diagnosis(self) -> EngineDiagnosis | None:
        """Returns what the rules say of this engine in this window; None without a row."""
        found = self.whole_diagnosis()
        return found.engines[0] if found.engines else None

    @property
    def _key(self) -> tuple[int, int, int]:
        return self.scope.engine, self.scope.start_ts, self.scope.end_ts

    @property
    def closed_window(self) -> ClosedWindow:
        """What is known of this page hangs on it: log as it lies on disk, engine, window."""
        return str(self.path), source.stamp_of(self.path), self._key

    def whole_diagnosis(self) -> Diagnosis:
        """Returns the same as a report is made from it."""
        if self.is_live:
            return _diagnose(self.log, *self._key, self.effort)
        return self._cached_diagnosis(self.effort)

    def _cached_diagnosis(self, effort: Effort) -> Diagnosis:
        stamp = source.stamp_of(self.path)
        return _cached_diagnosis(str(self.path), stamp, *self._key, effort, self.log)

    def replay(self) -> None:
        """Replays the load of a closed log's window, for every visitor who looks at it."""
        window, known = self.closed_window, _replayed()
        self._cached_diagnosis("usual")
        self._cached_explanation("usual")
        known[window] = None
        while len(known) > MAX_REPLAYED:
            known.pop(next(iter(known)), None)

    def explanation(self) -> tuple[Explanation, int] | None:
        """Returns every candidate for the worst storm's cause, and how many it evicted.

        None without a storm.
        """
        if self.is_live:
            return _explain(self.log, *self._key, self.effort)
        return self._cached_explanation(self.effort)

    def _cached_explanation(self, effort: Effort) -> tuple[Explanation, int] | None:
        stamp = source.stamp_of(self.path)
        return _cached_explanation(str(self.path), stamp, *self._key, effort, self.log)

    def refreshed(self) -> Page:
        """Returns the same page with what has been written since; closed pages do not change."""
        if not self.is_live or self.is_pinned:
            return self
        engines = read_engines(self.log)
        same = [start for start in engines if start.engine == self.engine.engine]
        if not same:
            return self
        return replace(
            self, engines=engines, engine=same[0], scope=whole_window(same[0], live=True)
        )


# -------------------------------------------------------------------------------------- opening


def open_page() -> Page | None:
    """Returns what this run shows; None where nothing is recorded yet.

    Raises:
        StepscopeError: the log cannot be read; the message says why.
    """
    _restore_address()
    root = source.root_log()
    name = st.query_params.get("log")
    path = source.resolve(root, name)
    if not source.is_log(path) and not path.is_file():  # a bundle is a file
        return None
    log = _open(str(path))
    is_live = log.is_live
    engines = _engines(path, log, is_live=is_live)
    if not engines:
        return None
    engine = _chosen(engines)
    wanted = address.parse_window(st.query_params)
    whole = whole_window(engine, live=is_live)
    if is_live:
        st.session_state[WAS_LIVE] = engine.engine
    scope = whole if wanted is None else Scope(engine.engine, *wanted)
    page = Page(
        log=log,
        path=path,
        name=name,
        is_live=is_live,
        is_pinned=wanted is not None,
        is_lost=not is_live
        and engine.end_kind is None
        and st.session_state.get(WAS_LIVE) == engine.engine,
        engines=engines,
        engine=engine,
        scope=scope,
        theme=theme(),
        width=page_width(),
        effort="none",
    )
    is_replayed = not is_live and page.closed_window in _replayed()
    return replace(page, effort="usual") if is_replayed else page


def choose(**parts: str | None) -> None:
    """Puts parts of the address in place; None takes one out."""
    for name, value in parts.items():
        key = name.rstrip("_")
        if value is None:
            st.session_state.pop(f"address_{key}", None)
            st.query_params.pop(key, None)
        else:
            st.session_state[f"address_{key}"] = value
            st.query_params[key] = value


def _restore_address() -> None:
    """Navigation drops the address' parameters; the session puts them back."""
    for key in KEPT:
        stored = f"address_{key}"
        if key in st.query_params:
            st.session_state[stored] = st.query_params[key]
        elif stored in st.session_state:
            st.query_params[key] = st.session_state[stored]


def _chosen(engines: tuple[EngineStart, ...]) -> EngineStart:
    wanted = address.parse_engine(st.query_params.get("engine"))
    return next((start for start in engines if start.engine == wanted), engines[0])


def whole_window(engine: EngineStart, *, live: bool) -> Scope:
    """Returns all that is known of an engine start; of a live one the last 15 minutes."""
    start = engine.first_ts
    if live:
        start = max(start, engine.newest_ts - LIVE_WINDOW_NS)
    return Scope(engine.engine, start, max(engine.newest_ts, start + 1))


def page_width() -> int:
    """Returns how wide the page is: as its browser says, or said last time; else a usual width."""
    told = st.session_state.get(WIDTH) or st.context.cookies.get(WIDTH_COOKIE, "")
    width = int(told) if str(told).isdecimal() else DEFAULT_WIDTH
    return width if MIN_WIDTH <= width <= MAX_WIDTH else DEFAULT_WIDTH


def theme() -> Theme:
    """Returns the theme that the visitor chose, or their system prefers."""
    kind = st.context.theme.type
    return kind if kind in ("dark", "light") else "dark"


# ----------------------------------------------------------------------------- asking and caching


@st.cache_resource(show_spinner=False, max_entries=8, on_release=lambda log: log.close())
def _open(path: str) -> Log:
    return open_log(Path(path))


def _frame(log: Log, sql: str, params: dict[str, Any] | None) -> pd.DataFrame:
    return log.query(sql, params).to_pandas()


@st.cache_data(show_spinner=False, max_entries=MAX_CACHED)
def _cached_frame(path: str, stamp: source.Stamp, sql: str, given: str, _log: Log) -> pd.DataFrame:
    return _frame(_log, sql, json.loads(given))


def _diagnose(log: Log, engine: int, start_ts: int, end_ts: int, effort: Effort) -> Diagnosis:
    window = Window(start_ts=start_ts, end_ts=end_ts)
    rules = chosen_rules(None, log.target)
    return diagnose(log, window, engines=[engine], rules=rules, effort=effort)


def _engines(path: Path, log: Log, *, is_live: bool) -> tuple[EngineStart, ...]:
    return read_engines(log) if is_live else _cached_engines(str(path), source.stamp_of(path), log)


@st.cache_data(show_spinner=False, max_entries=8)
def _cached_engines(path: str, stamp: source.Stamp, _log: Log) -> tuple[EngineStart, ...]:
    return read_engines(_log)


@st.cache_resource(show_spinner=False)
def _replayed() -> dict[ClosedWindow, None]:
    """Returns the windows whose load has been replayed, oldest first."""
    return {}


@st.cache_data(show_spinner=False, max_entries=MAX_DIAGNOSES)
def _cached_diagnosis(
    path: str,
    stamp: source.Stamp,
    engine: int,
    start_ts: int,
    end_ts: int,
    effort: Effort,
    _log: Log,
) -> Diagnosis:
    return _diagnose(_log, engine, start_ts, end_ts, effort)


def _explain(
    log: Log, engine: int, start_ts: int, end_ts: int, effort: Effort
) -> tuple[Explanation, int] | None:
    storm = read_context(log, Window(start_ts=start_ts, end_ts=end_ts), engine, effort).storm
    return None if storm is None else (storm.explanation, storm.account.num_rows)


@st.cache_data(show_spinner=False, max_entries=40)
def _cached_explanation(
    path: str,
    stamp: source.Stamp,
    engine: int,
    start_ts: int,
    end_ts: int,
    effort: Effort,
    _log: Log,
) -> tuple[Explanation, int] | None:
    return _explain(_log, engine, start_ts, end_ts, effort)


def behind_seconds(page: Page) -> float:
    """Returns how old the newest row of a live engine is, in seconds."""
    return max(0.0, time.time() - page.engine.newest_ts / 1e9)


__all__ = ["EngineStart", "Page", "engine_label", "open_page", "read_engines"]
