"""Fetches what the overview's panels are drawn from, and chooses how much it is reduced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dashboard.charts import load, memory, reasons, work
from dashboard.charts.axis import LABEL_SPACE, TimeAxis
from dashboard.charts.canvas import NO_GAPS, NO_STOPS, Canvas
from dashboard.charts.timeline import readouts, timeline
from dashboard.queries import header, panels
from dashboard.queries.reduction import (
    MAX_EXACT_STEPS,
    MAX_MARKS,
    MAX_RUNS,
    bin_ns,
    grain_ns,
)
from dashboard.starts import View
from diagnose.accounting import Accounting
from diagnose.diagnosis import EngineDiagnosis
from diagnose.reading import Scope

SIDE_SPACE = LABEL_SPACE + 44
"""Pixels of a page's width beside the plots."""


@dataclass(slots=True)
class Timeline:
    """The chart and the statements that it was drawn from, by panel."""

    chart: Any
    statements: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PanelReader:
    """Asks a page, and remembers what was asked."""

    page: View
    num_rows: int
    before_ts: int | None
    statements: dict[str, str] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        return self.page.scope

    def ask(self, name: str, sql: str) -> pd.DataFrame:
        self.statements[name] = sql
        return self.page.ask(sql)

    def states(
        self,
        name: str,
        runs: Callable[[Scope, int | None], str],
        stretches: Callable[[Scope, int, int | None], str],
        num_series: int,
    ) -> tuple[pd.DataFrame, int | None]:
        """Returns every change of state where they can be drawn, else stretches of a length."""
        if self.num_rows <= MAX_EXACT_STEPS:
            frame = self.ask(name, runs(self.scope, self.before_ts))
            if len(frame) <= MAX_RUNS:
                return frame, None
        length = grain_ns(self.scope, num_series)
        return self.ask(name, stretches(self.scope, length, self.before_ts)), length


def build(page: View, engine: EngineDiagnosis, *, is_still: bool = False) -> Timeline:
    """Returns the seven panels of a page's window; a still picture has no readout."""
    scope = page.scope
    window = page.row(header.window(scope))
    before = window["before_ts"]
    reader = PanelReader(page, int(window["num_rows"]), None if before is None else int(before))
    facts = page.row(panels.facts(scope))
    pool = None if facts["pool"] is None else int(facts["pool"])
    canvas = _canvas(reader, window, pool, has_cursor=not is_still)
    length = bin_ns(scope)
    chart = timeline(
        canvas,
        [
            _arrivals(reader, canvas, length),
            _preemptions(reader, canvas, engine.accounting, int(window["num_steps"]), length),
            _blocks(reader, canvas, facts, pool, engine.settings.block_size),
            _need(reader, canvas, facts),
            _running(reader, canvas, engine.settings.max_num_seqs),
            _stops(reader, canvas),
            _tokens(reader, canvas, engine, length),
        ],
        is_still=is_still,
    )
    return Timeline(chart, reader.statements)


def _canvas(
    reader: PanelReader, window: dict[str, Any], pool: int | None, *, has_cursor: bool
) -> Canvas:
    page, scope = reader.page, reader.scope
    axis = TimeAxis(
        scope.start_ts, scope.end_ts, page.theme, width=max(480, page.width - SIDE_SPACE)
    )
    gaps = NO_GAPS
    if window["num_missing"]:
        gaps = reader.ask("Steps that are missing", header.gaps(scope))
    last = scope.end_ts if window["last_ts"] is None else int(window["last_ts"])
    if window["last_in_engine"] == 0 and not page.engine.is_interrupted:
        last = scope.end_ts  # an idle engine writes no steps: its last state holds
    return Canvas(
        axis=axis,
        stops=readouts(reader.ask("Readout", header.readouts(scope)), pool)
        if has_cursor
        else NO_STOPS,
        gaps=gaps,
        end=min((last - scope.start_ts) / 1e6, axis.length_ms),
        events=reader.ask("Events of the engine", header.events(scope)),
    )


def _arrivals(reader: PanelReader, canvas: Canvas, length: int) -> Any:
    name = "Requests arriving and finishing"
    marks = reader.ask(name, panels.arrivals(reader.scope))
    counts = marks["kind"].value_counts()
    if counts.max() <= MAX_MARKS if len(counts) else True:
        arrived, finished = (int(counts.get(kind, 0)) for kind in ("arrived", "finished"))
        return load.arrivals(canvas, marks, num_arrived=arrived, num_finished=finished, bin_ns=None)
    bars = reader.ask(name, panels.arrivals_per_bin(reader.scope, length))
    totals = bars.groupby("kind")["n"].sum()
    return load.arrivals(
        canvas,
        bars.assign(x=bars["x"] + length / 2e6),
        num_arrived=int(totals.get("arrived", 0)),
        num_finished=int(totals.get("finished", 0)),
        bin_ns=length,
    )


def _preemptions(
    reader: PanelReader, canvas: Canvas, account: Accounting, num_steps: int, length: int
) -> Any:
    title = "Preemptions by cause"
    bars = reader.ask(title, panels.preemptions_per_bin(reader.scope, length))
    totals = {str(cause): int(n) for cause, n in bars.groupby("cause")["n"].sum().items()}
    missing = max(account.unattributed or 0, 0)
    totals["unattributed"] = max(totals.get("unattributed", 0), missing)
    steps = reader.page.row(panels.preempting_steps(reader.scope))["num_steps"]
    fact = f"{sum(totals.values()):,} in {int(steps or 0):,} of {num_steps:,} steps"
    return work.preemptions(canvas, bars, totals=totals, fact=fact, bin_ns=length)


def _blocks(
    reader: PanelReader,
    canvas: Canvas,
    facts: dict[str, Any],
    pool: int | None,
    block_size: int | None,
) -> Any:
    title = "KV blocks"
    runs, mean_over = reader.states(title, panels.blocks_runs, panels.blocks_stretches, 4)
    if runs.empty or pool is None:
        missing = "steps.num_blocks_running, engines.num_usable_blocks"
        return canvas.silence(title, missing, height=memory.BLOCKS_HEIGHT)
    nearly = pool - int(0.05 * pool)
    share = 100 * (facts["num_full"] or 0) / max(facts["num_steps"] or 1, 1)
    fact = f"{nearly:,} or more of {pool:,} in use in {share:.0f} % of steps"
    return memory.blocks(
        canvas, runs, pool=pool, block_size=block_size, fact=fact, mean_over=mean_over
    )


def _need(reader: PanelReader, canvas: Canvas, facts: dict[str, Any]) -> Any:
    title = "Free blocks against the blocks the queue head needs"
    runs, worst_over = reader.states("Free blocks", panels.need_runs, panels.need_stretches, 1)
    if runs.empty:
        missing = "steps.num_blocks_free_unhashed, steps.num_blocks_free_cached"
        return canvas.silence(title, missing, height=memory.NEED_HEIGHT)
    short, steps = int(facts["num_short"] or 0), max(int(facts["num_steps"] or 1), 1)
    fact = f"short in {short:,} steps, {100 * short / steps:.0f} %"
    return memory.need(canvas, runs, fact=fact, worst_over=worst_over)


def _running(reader: PanelReader, canvas: Canvas, max_num_seqs: int | None) -> Any:
    title = "Requests running, and waiting by reason"
    runs, mean_over = reader.states(
        title, panels.waiting_runs, panels.waiting_stretches, panels.MAX_SERIES + 2
    )
    if runs.empty:
        return canvas.silence(title, "steps.num_running", height=load.RUNNING_HEIGHT)
    return load.running_and_waiting(canvas, runs, max_num_seqs=max_num_seqs, mean_over=mean_over)


def _stops(reader: PanelReader, canvas: Canvas) -> Any:
    title = "Why admission stopped"
    totals = reader.ask(f"{title}, totals", panels.stop_totals(reader.scope))
    if totals.empty:
        return canvas.silence(f"{title}, every step", "steps.stop_reason", height=reasons.LANE * 2)
    runs, share_of = reader.states(title, panels.stop_runs, panels.stop_shares, len(totals))
    return reasons.stops(canvas, runs, totals, share_of=share_of)


def _tokens(reader: PanelReader, canvas: Canvas, engine: EngineDiagnosis, length: int) -> Any:
    title = "Token work"
    bars = reader.ask(title, panels.token_work(reader.scope, length))
    if bars.empty or bars["useful"].isna().all():
        missing = "steps.num_prefill_tokens, steps.num_decode_tokens"
        return canvas.silence(title, missing, height=work.TOKENS_HEIGHT, last=True)
    has_drafts = engine.settings.num_speculative_tokens is not None
    return work.tokens(canvas, bars, has_drafts=has_drafts, bin_ns=length)
