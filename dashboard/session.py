"""What a page shows: the log, the engine, the window; and the address that says so.

A page asks `open_page()` on every run. The address is read first and written back, so that it
survives a change of page. What the log answers is `answers`' business.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import address, answers, source
from dashboard.answers import Answers, ClosedWindow, Explained
from dashboard.colours import Theme
from dashboard.starts import EngineStart, engine_label, one_row, read_engines
from diagnose.causes.attribution import Effort
from diagnose.diagnosis import Diagnosis, EngineDiagnosis
from diagnose.reading import Scope
from diagnose.window import LIVE_WINDOW_NS
from telemetry.store import Log

KEPT = ("log", "engine", "from", "to")
"""Parts of the address that survive a change of page."""
DEFAULT_WIDTH = 1384
"""Pixels between the margins of a page at 1440 px."""
MIN_WIDTH, MAX_WIDTH = 240, 8_000
"""Widths that a browser is believed."""
WIDTH = "page_width"
WIDTH_COOKIE = "stepscope_page_width"
"""Where a session keeps its page's width, and where a browser does until its next visit."""
WAS_LIVE = "was_live"


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

    @property
    def _answers(self) -> Answers:
        return Answers(self.log, self.path, self.is_live)

    def ask(self, sql: str, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Returns the rows of one statement."""
        return self._answers.rows(sql, params)

    def row(self, sql: str) -> dict[str, Any]:
        """Returns the one row of an aggregate; what is NULL is None."""
        return one_row(self.ask(sql))

    def diagnosis(self) -> EngineDiagnosis | None:
        """Returns what the rules say of this engine in this window; None without a row."""
        found = self.whole_diagnosis()
        return found.engines[0] if found.engines else None

    def whole_diagnosis(self) -> Diagnosis:
        """Returns the same as a report is made from it."""
        return self._answers.diagnosis(self.scope, self.effort)

    def explanation(self) -> Explained | None:
        """Returns what may have caused the worst storm; None without one."""
        return self._answers.explanation(self.scope, self.effort)

    @property
    def closed_window(self) -> ClosedWindow:
        """What is known of this page hangs on it: log as it lies on disk, engine, window."""
        return self._answers.closed_window(self.scope)

    def replay(self) -> None:
        """Replays the load of a closed log's window, for every visitor who looks at it."""
        self._answers.replay(self.scope)

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
    log = answers.opened(str(path))
    is_live = log.is_live
    told = Answers(log, path, is_live)
    engines = told.engines()
    if not engines:
        return None
    engine = _chosen(engines)
    wanted = address.parse_window(st.query_params)
    whole = whole_window(engine, live=is_live)
    if is_live:
        st.session_state[WAS_LIVE] = engine.engine
    scope = whole if wanted is None else Scope(engine.engine, *wanted)
    return Page(
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
        effort="usual" if told.is_replayed(scope) else "none",
    )


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


def behind_seconds(page: Page) -> float:
    """Returns how old the newest row of a live engine is, in seconds."""
    return max(0.0, time.time() - page.engine.newest_ts / 1e9)


__all__ = ["EngineStart", "Page", "engine_label", "open_page", "read_engines"]
