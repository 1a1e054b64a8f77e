"""The charts of each page, built without a browser: what asks the log, and what draws.

A chart is a pure function of frames. So each is built twice from the same view: the first time it
asks the log, the second time the answers are there and only building is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboard.charts.axis import AXIS_SPACE
from dashboard.charts.blocks import block_chart, choose
from dashboard.charts.evictions import GRID_CELLS, MAX_MARKS, cost_bar, eviction_map
from dashboard.charts.phases import phase_bar
from dashboard.queries import preemptions
from dashboard.report.reader import Reader
from dashboard.starts import read_engines
from dashboard.step_blocks import block_map
from dashboard.step_words import phases
from dashboard.timeline_data import build
from dashboard.vega import spec_of, trust_charts
from diagnose.diagnosis import EngineDiagnosis, diagnose
from diagnose.reading import Scope
from diagnose.window import Window
from telemetry.step_facts import read_step
from telemetry.store import Log, open_log

WIDTH = 1384
HALF = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One page's charts: seconds to ask the log, and to build them, as the pages do."""

    page: str
    ask_seconds: float
    ask_cpu_seconds: float
    build_seconds: float
    build_cpu_seconds: float


def builds(log_directory: Path) -> Iterator[Built]:
    """Yields what the first look's diagnosis takes, then the charts of each page with charts."""
    trust_charts()
    with open_log(log_directory) as log:
        start = read_engines(log)[0]
        scope = Scope(start.engine, start.first_ts, start.newest_ts)
        wall, cpu = time.perf_counter(), time.process_time()
        window = Window(start_ts=scope.start_ts, end_ts=scope.end_ts)
        engine = diagnose(log, window, engines=[start.engine], effort="none").engines[0]
        yield Built(
            page="the verdict (no chart)",
            ask_seconds=time.perf_counter() - wall,
            ask_cpu_seconds=time.process_time() - cpu,
            build_seconds=0.0,
            build_cpu_seconds=0.0,
        )
        view = Reader(log, start, scope, "dark", WIDTH)
        yield _timed("overview", lambda: [build(view, engine).chart])
        yield _timed("preemptions", lambda: _preemptions(view, engine))
        yield _timed("steps", lambda: _step(log, view))


def _timed(page: str, draw: Callable[[], list[Any]]) -> Built:
    wall, cpu = time.perf_counter(), time.process_time()
    draw()
    wall_asked, cpu_asked = time.perf_counter(), time.process_time()
    for chart in draw():
        spec_of(chart)
    build_seconds = time.perf_counter() - wall_asked
    build_cpu = time.process_time() - cpu_asked
    return Built(
        page=page,
        ask_seconds=wall_asked - wall,
        ask_cpu_seconds=cpu_asked - cpu,
        build_seconds=build_seconds,
        build_cpu_seconds=build_cpu,
    )


def _preemptions(view: Reader, engine: EngineDiagnosis) -> list[Any]:
    account = engine.accounting
    marks = view.ask(preemptions.marks(view.scope, MAX_MARKS + 1))
    if marks.empty:
        return []
    by_priority = bool(marks["by_priority"].iloc[0])
    if len(marks) > MAX_MARKS:
        marks = view.ask(preemptions.grid(view.scope, GRID_CELLS))
    payers = (account.num_newer_paid, account.num_itself_paid, account.num_older_paid)
    drawn = eviction_map(
        marks, width=HALF, theme=view.theme, payers=payers, by_priority=by_priority
    )
    lost = account.loss.num_lost or 0
    return [drawn, cost_bar([("lost", lost, "#CF4A0A")], width=HALF, theme=view.theme)]


def _step(log: Log, view: Reader) -> list[Any]:
    """Returns the charts of the step with the most evictions, its block map where it is known."""
    number = view.row(
        f"SELECT arg_max(step, num_preempted)::BIGINT AS step FROM steps WHERE {view.scope.where()}"
    )["step"]
    facts = None if number is None else read_step(log, int(number), view.scope.engine)
    if facts is None:
        return []
    charts = [phase_bar(phases(facts), width=HALF, theme=view.theme)] if phases(facts) else []
    blocks = block_map(facts)
    if blocks is not None:
        width = WIDTH - AXIS_SPACE
        drawn = choose(blocks, width)
        size = facts.engine.get("block_size")
        charts.append(block_chart(blocks, drawn, width=width, theme=view.theme, block_size=size))
    return charts
