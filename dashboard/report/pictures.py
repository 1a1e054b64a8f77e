"""The charts of a window as pictures: the dashboard's own, in both themes, with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from dashboard.charts.axis import AXIS_SPACE, LABEL_SPACE, TimeAxis
from dashboard.charts.evictions import GRID_CELLS, MAX_MARKS, eviction_map
from dashboard.charts.scrapes import scraped_load
from dashboard.charts.timeline import PADDING
from dashboard.colours import Theme
from dashboard.queries import preemptions, scrapes, summary
from dashboard.report.reader import Reader
from dashboard.report.svg import to_svg
from dashboard.starts import read_engines
from dashboard.timeline_data import SIDE_SPACE, build
from diagnose.accounting import account
from diagnose.diagnosis import Diagnosis, EngineDiagnosis
from diagnose.document import Table, Text
from diagnose.reading import QueryLog, Scope
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.words import NOT_MEASURED, count, duration, percent, plural, time_of_day

WIDTH = 900
"""Pixels of a picture, with its labels: an A4 page shows it at two thirds."""
MAP_WIDTH = 620
ROOM = 48
"""Pixels beside the labels: a report's font may be wider than the dashboard's."""
MAX_WINDOWS = 8
"""Windows that have charts; a report says how many have none."""
THEMES: tuple[Theme, ...] = ("light", "dark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart in both themes, what it shows in words, and its numbers."""

    title: str
    svg: dict[Theme, str]
    table: Table
    width: int
    is_narrow: bool = False
    """Whether it takes less than the width of a page of paper."""


class Pictures:
    """Draws the charts of a diagnosis' windows; the same window is drawn once."""

    def __init__(self, log: QueryLog, diagnosis: Diagnosis) -> None:
        self._log = log
        self._of = {engine.scope.engine: engine for engine in diagnosis.engines}
        self._starts = {start.engine: start for start in read_engines(log)}
        self._drawn: dict[Scope, tuple[Picture, ...]] = {}

    def of(self, scope: Scope) -> tuple[Picture, ...]:
        """Returns the charts of a window; none of one that was shown, or after the last that is."""
        is_full = len(self._drawn) >= MAX_WINDOWS
        if is_full or scope in self._drawn or scope.engine not in self._starts:
            return ()
        self._drawn[scope] = tuple(self._draw(scope))
        return self._drawn[scope]

    def _draw(self, scope: Scope) -> Iterator[Picture]:
        engine, start = self._of[scope.engine], self._starts[scope.engine]
        reader = Reader(self._log, start, scope, "light", WIDTH)
        prefix = f"p{len(self._drawn)}"
        if engine.metrics is not None:
            yield from _scraped(reader, engine.metrics, prefix)
            return
        yield _timeline(reader, engine, prefix)
        yield from _evictions(reader, prefix)


def _themed(
    reader: Reader, prefix: str, draw: Callable[[Reader], Any], width: int | None
) -> dict[Theme, str]:
    return {
        theme: to_svg(draw(replace(reader, theme=theme)), prefix=f"{prefix}{theme[0]}", width=width)
        for theme in THEMES
    }


def _drawn_width(width: int) -> int:
    """Returns where a timeline ends: its plots, and the labels at their right."""
    return PADDING["left"] + AXIS_SPACE + width - SIDE_SPACE + LABEL_SPACE + ROOM


def _timeline(reader: Reader, engine: EngineDiagnosis, prefix: str) -> Picture:
    def draw(themed: Reader) -> Any:
        return build(themed, engine, is_still=True).chart

    width = _drawn_width(reader.width)
    return Picture(
        title=f"The engine from {_when(reader.scope)}",
        svg=_themed(reader, prefix, draw, width),
        table=_steps_table(reader),
        width=width,
    )


def _when(scope: Scope) -> str:
    digits = 1 if scope.duration_ns < 120e9 else 0
    start, end = time_of_day(scope.start_ts, digits), time_of_day(scope.end_ts, digits)
    return f"{start} to {end} UTC"


def _steps_table(reader: Reader) -> Table:
    rows = reader.ask(summary.per_stretch(reader.scope)).to_dict("records")
    head = (
        *("from", "steps", "most running", "most waiting", "fewest free blocks"),
        *("most that the head needs", "preempted", "tokens", "recomputed", "usual stop"),
    )
    length = duration(summary.stretch_ns(reader.scope))
    return Table(
        f"The same in numbers, a row for each {length}",
        head,
        tuple(_steps_row(row) for row in rows),
        frozenset(range(1, 9)),
    )


def _steps_row(row: dict[Any, Any]) -> tuple[Text, ...]:
    names = ("steps", "running", "waiting", "free", "needed", "preempted", "tokens", "recomputed")
    numbers = (count(_known(row[name])) for name in names)
    return (time_of_day(int(row["ts"]), 3), *numbers, str(row["stop"] or NOT_MEASURED))


def _known(value: Any) -> int | None:
    """Returns a whole number; None where it is NULL."""
    return None if pd.isna(value) else int(value)


def _evictions(reader: Reader, prefix: str) -> Iterator[Picture]:
    marks = reader.ask(preemptions.marks(reader.scope, MAX_MARKS + 1))
    if marks.empty:
        return
    by_priority = bool(marks["by_priority"].iloc[0])
    if len(marks) > MAX_MARKS:
        marks = reader.ask(preemptions.grid(reader.scope, GRID_CELLS))
    found = account(reader.log, reader.scope, saw_start=False)
    payers = (found.num_newer_paid, found.num_itself_paid, found.num_older_paid)

    def draw(themed: Reader) -> Any:
        return eviction_map(
            marks, width=MAP_WIDTH, theme=themed.theme, payers=payers, by_priority=by_priority
        )

    yield Picture(
        title="Who evicted whom: a mark a preemption, larger = more computed tokens lost",
        svg=_themed(reader, f"{prefix}e", draw, None),
        table=_payers_table(payers),
        width=MAP_WIDTH + 20,
        is_narrow=True,
    )


def _payers_table(payers: tuple[int, int, int]) -> Table:
    names = ("a newer request paid", "the asking one paid itself", "an older request paid")
    total = max(sum(payers), 1)
    rows = tuple(
        (name, count(number), percent(number / total))
        for name, number in zip(names, payers, strict=True)
    )
    return Table(
        "The same in numbers", ("who paid", "preemptions", "share"), rows, frozenset({1, 2})
    )


def _scraped(reader: Reader, facts: MetricFacts, prefix: str) -> Iterator[Picture]:
    if facts.source is None:
        return
    points = reader.ask(scrapes.load(reader.scope, facts.source))
    if points.empty:
        return

    def draw(themed: Reader) -> Any:
        scope, width = themed.scope, themed.width - SIDE_SPACE
        return scraped_load(
            points, TimeAxis(scope.start_ts, scope.end_ts, themed.theme, width=width)
        )

    width = _drawn_width(reader.width)
    yield Picture(
        title=f"The engine from {_when(reader.scope)}, a point a {facts.noun}",
        svg=_themed(reader, prefix, draw, width),
        table=_scrapes_table(reader, facts),
        width=width,
    )


def _scrapes_table(reader: Reader, facts: MetricFacts) -> Table:
    assert facts.source is not None  # a scraped engine has one
    rows = reader.ask(scrapes.load(reader.scope, facts.source, most=summary.NUM_ROWS)).to_dict(
        "records"
    )
    told = tuple(
        (
            time_of_day(reader.scope.start_ts + int(row["x"] * 1e6), 1),
            count(_known(row["running"])),
            count(_known(row["waiting"])),
            percent(None if pd.isna(row["used"]) else row["used"]),
            count(_known(row["preempted"])),
        )
        for row in rows
    )
    head = ("until", "most running", "most waiting", "most of the KV pool", "preemptions counted")
    name = f"The same in numbers: {plural(facts.num_scrapes, facts.noun)}, at most"
    return Table(f"{name} {summary.NUM_ROWS} rows", head, told, frozenset({1, 2, 3, 4}))
