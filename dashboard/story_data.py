"""Fetches what the charts of one request's story are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from dashboard.charts import load, request_phases, request_story, request_tokens
from dashboard.charts.canvas import NO_GAPS, Canvas
from dashboard.charts.endings import Ending
from dashboard.charts.memory import NEED_HEIGHT
from dashboard.charts.since_arrival import SinceArrival
from dashboard.charts.timeline import readouts
from dashboard.queries import header, panels
from dashboard.queries import request_story as queries
from dashboard.session import Page
from dashboard.timeline_data import SIDE_SPACE, PanelReader
from diagnose.reading import Scope
from diagnose.words import NOT_MEASURED, count

MARGIN = 0.02
"""Share of a request's life that is shown before and after it."""
MIN_MARGIN_NS = 1_000_000
Row = dict[str, Any]


@dataclass(slots=True)
class StoryChart:
    """The chart, the window that it shows, and the statements that it was drawn from."""

    chart: Any
    page: Page
    statements: dict[str, str] = field(default_factory=dict)


def build(page: Page, request: Row) -> StoryChart | None:
    """Returns the panels of a request's life, given its row; None where it has no length yet."""
    number, engine = int(request["request"]), page.scope.engine
    life = page.row(queries.life(engine, number))
    if life["until_ts"] is None:
        return None
    arrived, until = int(life["arrived_ts"]), int(life["until_ts"])
    margin = max(int((until - arrived) * MARGIN), MIN_MARGIN_NS)
    scope = Scope(engine, arrived - margin, until + margin)
    page = replace(page, scope=scope)
    window = page.row(header.window(scope))
    before = None if window["before_ts"] is None else int(window["before_ts"])
    reader = PanelReader(page, int(window["num_rows"]), before)
    ending = _ending(page, request, (until - scope.start_ts) / 1e6)
    canvas = _canvas(reader, window, arrived)
    evictions = reader.ask("Its preemptions", queries.evictions(scope, number))
    phases = reader.ask("Its phases", queries.phases(scope, number))
    chart = request_story.story(
        canvas,
        [
            request_phases.legend(canvas, set(phases["phase"])),
            request_phases.phases(canvas, phases, evictions, request=number, ending=ending),
            _tokens(reader, canvas, evictions, request, ending, set(phases["phase"])),
            _meanwhile(reader, canvas, evictions),
            _free_blocks(reader, canvas, evictions),
        ],
    )
    return StoryChart(chart, page, reader.statements)


def _ending(page: Page, request: Row, x: float) -> Ending:
    if request["is_finished"]:
        return Ending(x)
    if page.is_live and page.engine.end_ts is None:
        return Ending(x, "has not ended yet")
    return Ending(x, "no end is recorded", is_torn=True)


def _canvas(reader: PanelReader, window: Row, arrived: int) -> Canvas:
    page, scope = reader.page, reader.scope
    axis = SinceArrival(
        scope.start_ts,
        scope.end_ts,
        page.theme,
        width=max(480, page.width - SIDE_SPACE),
        arrived_ts=arrived,
    )
    last = scope.end_ts if window["last_ts"] is None else int(window["last_ts"])
    if window["last_in_engine"] == 0 and not page.engine.is_interrupted:
        last = scope.end_ts  # an idle engine writes no steps: its last state holds
    moments = reader.ask("Readout", header.readouts(scope))
    gaps = NO_GAPS
    if window["num_missing"]:
        gaps = reader.ask("Steps that are missing", header.gaps(scope))
    return Canvas(
        axis=axis,
        stops=readouts(moments, None),
        gaps=gaps,
        end=min((last - scope.start_ts) / 1e6, axis.length_ms),
        events=reader.ask("Events of the engine", header.events(scope)),
    )


def _tokens(
    reader: PanelReader,
    canvas: Canvas,
    evictions: pd.DataFrame,
    request: Row,
    ending: Ending,
    phases: set[str],
) -> Any:
    points = reader.ask("Its tokens", queries.tokens(reader.scope, int(request["request"])))
    is_still_queued = phases <= {"queued", "load"} and not request["is_finished"]
    if points.empty and is_still_queued:
        points = request_tokens.none_yet(canvas.end)
    if not points["tokens"].notna().any():
        missing = "what it had computed when it was admitted, preempted or finished"
        return canvas.silence(request_tokens.TITLE, missing, height=request_tokens.HEIGHT)
    return request_tokens.tokens(
        canvas,
        points,
        evictions,
        num_prompt_tokens=int(request["num_prompt_tokens"]),
        fact="not admitted yet: 0 tokens" if is_still_queued else _losses(evictions),
        ending=ending,
        under=request_story.eviction_rules(canvas, evictions),
    )


def _losses(evictions: pd.DataFrame) -> str:
    if evictions.empty:
        return "never preempted: nothing was lost"
    said = [
        f"{_sum(evictions['lost'])} lost",
        f"{_sum(evictions['recomputed'])} computed again",
        f"{_sum(evictions['from_cache'])} back from the cache",
    ]
    if evictions["from_connector"].fillna(0).any():
        said.append(f"{_sum(evictions['from_connector'])} from a connector")
    return ", ".join(said)


def _sum(values: pd.Series) -> str:
    return NOT_MEASURED if values.isna().any() else count(int(values.sum()))


def _meanwhile(reader: PanelReader, canvas: Canvas, evictions: pd.DataFrame) -> Any:
    title = request_story.MEANWHILE_TITLE
    runs, mean_over = reader.states(
        "The engine meanwhile", panels.waiting_runs, panels.waiting_stretches, panels.MAX_SERIES + 2
    )
    if runs.empty:
        return canvas.silence(title, "steps.num_running", height=load.RUNNING_HEIGHT)
    return load.running_and_waiting(
        canvas,
        runs,
        max_num_seqs=None,
        mean_over=mean_over,
        title=title,
        paleness=request_story.PALENESS,
        more=canvas.event_words(),
        over=request_story.eviction_rules(canvas, evictions),
    )


def _free_blocks(reader: PanelReader, canvas: Canvas, evictions: pd.DataFrame) -> Any:
    runs, worst_over = reader.states("Free blocks", panels.need_runs, panels.need_stretches, 1)
    if runs.empty:
        missing = "steps.num_blocks_free_unhashed, steps.num_blocks_free_cached"
        title = request_story.FREE_TITLE
        return canvas.silence(title, missing, height=NEED_HEIGHT, last=True)
    rules = request_story.eviction_rules(canvas, evictions, last=True)
    return request_story.free_blocks(canvas, runs, worst_over=worst_over, rules=rules)
