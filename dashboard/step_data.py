"""One step as the log holds it, with the statements that told it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pyarrow as pa
import streamlit as st

from dashboard import source
from dashboard.session import Page
from telemetry.step_facts import LogReader, StepFacts, read_step
from telemetry.store import Log

_TITLES = {
    "steps": "The step",
    "engines": "Its engine",
    "request_events": "What happened in it",
    "step_requests": "Requests in it",
    "queue_by_reason_between": "Who waits, by reason",
}
_TABLE = re.compile(r"\bFROM (\w+)")


@dataclass(slots=True)
class _Listening:
    """Asks a log, and remembers what was asked."""

    log: LogReader
    statements: dict[str, str] = field(default_factory=dict)

    def query(self, sql: str) -> pa.Table:
        found = _TABLE.search(sql)
        title = _TITLES.get(found[1], found[1]) if found else "Statement"
        if title in self.statements:
            title += ", the step before"
        self.statements[title] = sql
        return self.log.query(sql)


Told = tuple[StepFacts | None, dict[str, str]]


def read(page: Page, number: int) -> Told:
    """Returns a step of the page's engine, and the statements; None where no step is recorded.

    Raises:
        StepscopeError: the log holds steps, but not this one.
    """
    if page.is_live:
        return _read(page.log, number, page.scope.engine)
    stamp = source.stamp_of(page.path)
    return _cached(str(page.path), stamp, number, page.scope.engine, page.log)


def _read(log: LogReader, number: int, engine: int) -> Told:
    listening = _Listening(log)
    return read_step(listening, number, engine), listening.statements


@st.cache_data(show_spinner=False, max_entries=100)
def _cached(path: str, stamp: source.Stamp, number: int, engine: int, _log: Log) -> Told:
    return _read(_log, number, engine)
