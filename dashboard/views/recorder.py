"""Recorder: can I believe this page? What is recorded, dropped, counted twice, and not known."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import clock, header, recorder_data, states, vega
from dashboard import recorder_words as words
from dashboard.charts.axis import TimeAxis
from dashboard.charts.canvas import NO_GAPS, NO_STOPS, Canvas
from dashboard.charts.coverage import coverage
from dashboard.queries import header as window_queries
from dashboard.queries import recorder as queries
from dashboard.recorder_data import RowCost
from dashboard.session import Page
from dashboard.starts import one_row
from dashboard.timeline_data import SIDE_SPACE
from dashboard.untrusted import in_markdown, prose_in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.words import NOT_MEASURED, engine_hex, plural
from telemetry.doctor.check import Check
from telemetry.doctor.report import EngineHealth
from telemetry.errors import StepscopeError

EVERY_SECONDS = 5
MARKS = {
    "good": ":green[✓]",
    "warn": ":orange[▲]",
    "bad": ":red[◆]",
    "unknown": f":gray[{NOT_MEASURED}]",
}
COST = "row_cost"


def draw(page: Page) -> None:
    """Draws the page; on a live log it keeps itself up to date."""
    states.lost(page)
    is_moving = page.is_live and not page.is_pinned
    clock.repeated(_recorder, "recorder", EVERY_SECONDS if is_moving else None)(page)


def _recorder(page: Page) -> None:
    try:
        page = page.refreshed()
        engine = page.diagnosis()
        cover = page.row(queries.coverage(page.scope))
        states.interrupted(page)
        st.markdown(f"### {in_markdown(words.headline(cover, engine), 200)}")
        if cover["num_rows"]:
            _figures(cover, engine)
        elif engine is not None and engine.metrics is not None:
            states.no_steps(engine.metrics)
        _coverage(page, cover)
        _cards(page, cover, engine)
    except StepscopeError as error:
        states.unreadable(error)


def _figures(cover: dict[str, Any], engine: EngineDiagnosis | None) -> None:
    shown = words.totals(cover, engine)
    with st.container(border=True, key="figures"):
        for column, (value, name) in zip(st.columns(len(shown)), shown, strict=True):
            column.markdown(f"#### {value}\n:gray[{name}]")


def _coverage(page: Page, cover: dict[str, Any]) -> None:
    statements = {"Coverage": queries.coverage(page.scope)}
    stretches = queries.scrape_stretches(page.scope)
    found = page.ask(stretches)
    if not cover["num_rows"] and found.empty:
        states.idle(page)
        return
    gaps = NO_GAPS
    if cover["num_gaps"]:
        statements["Steps that are missing"] = window_queries.gaps(page.scope)
        gaps = page.ask(statements["Steps that are missing"])
    statements |= {"Stretches of scrapes": stretches, "Resets": queries.resets(page.scope)}
    chart = coverage(_canvas(page, gaps, statements), _extent(cover), found, _labels(cover, found))
    vega.show(chart, key=f"coverage-{page.theme}-{page.scope.start_ts}")
    if cover["num_gaps"] > len(gaps):
        st.caption(
            f"The {len(gaps):,} largest of {plural(int(cover['num_gaps']), 'gap')} are drawn."
        )
    header.links(page, statements, "coverage")


def _canvas(page: Page, gaps: pd.DataFrame, statements: dict[str, str]) -> Canvas:
    statements["Events of the engine"] = window_queries.events(page.scope)
    events = page.ask(statements["Events of the engine"])
    resets = page.ask(statements["Resets"])
    scope = page.scope
    width = max(280, page.width - SIDE_SPACE)
    axis = TimeAxis(scope.start_ts, scope.end_ts, page.theme, width=width)
    happened = events if resets.empty else pd.concat([events, resets], ignore_index=True)
    return Canvas(axis=axis, stops=NO_STOPS, gaps=gaps, end=axis.length_ms, events=happened)


def _extent(cover: dict[str, Any]) -> tuple[float, float] | None:
    return None if not cover["num_rows"] else (float(cover["x"]), float(cover["x2"]))


def _labels(cover: dict[str, Any], stretches: pd.DataFrame) -> dict[str, str]:
    of = int(cover["num_steps"] + cover["num_missing"])
    labels = {"steps": f"{int(cover['num_steps']):,} of {of:,} steps"}
    for name, own in stretches.groupby("source"):
        labels[str(name)] = f"{int(own['num_scrapes'].sum()):,} read"
    return labels


# -------------------------------------------------------------------------------------- the cards


def _cards(page: Page, cover: dict[str, Any], engine: EngineDiagnosis | None) -> None:
    looked = recorder_data.examination(page)
    left, right = st.columns(2, gap="small")
    with left:
        _this_engine(page, looked.engines)
        _not_known(engine)
    with right:
        _counters(page, is_recorded=bool(cover["num_rows"]))
        _scrapes(page)
        _cost(page, cover)
        _log(looked.checks)
    _others(page, looked.engines, looked.num_more_engines)


def _checks(checks: list[Check]) -> None:
    for check in checks:
        name, text = in_markdown(check.name), prose_in_markdown(check.text)
        st.markdown(f"{MARKS[check.level]} **{name}** &nbsp; {text}")


def _this_engine(page: Page, engines: list[EngineHealth]) -> None:
    own = engine_hex(page.scope.engine)
    found = [health for health in engines if health.engine == own]
    with st.container(border=True, key="card-engine"):
        st.markdown(f"**Engine {own}**")
        if not found:
            st.caption(f"Older than the {len(engines):,} newest starts, which are looked at.")
            return
        st.caption(in_markdown(found[0].title, 160))
        _checks(found[0].checks)


def _log(checks: list[Check]) -> None:
    with st.container(border=True, key="card-log"):
        st.markdown("**Collector, log, retention**")
        _checks(checks)


def _counters(page: Page, *, is_recorded: bool) -> None:
    statement = queries.counters(page.scope.engine)
    rows = _rows(page.ask(statement))
    with st.container(border=True, key="card-counters"):
        st.markdown("**Counters that should agree**")
        st.caption("Of the whole engine start: each counted by others than the recorder.")
        lines = [words.agreement(row, is_recorded=is_recorded) for row in rows]
        with st.container(key="counters"):
            st.table(
                [
                    {
                        "counter": line.name,
                        "recorded": line.recorded,
                        "engine's own": line.own,
                        "scraped": line.scraped,
                        "verdict": line.verdict,
                    }
                    for line in lines
                ],
                border="horizontal",
                hide_index=True,
            )
        header.links(page, {"Counters": statement}, "counters")


def _scrapes(page: Page) -> None:
    statement = queries.scrapes(page.scope)
    rows = _rows(page.ask(statement))
    with st.container(border=True, key="card-scrapes"):
        st.markdown("**Scrapes and log lines**")
        if not rows:
            st.markdown(
                f":gray[{NOT_MEASURED} not in use: `stepscope collect --scrape URL` puts an "
                "engine's own metrics beside its steps]"
            )
            return
        with st.container(key="scrapes"):
            st.table([words.scrape_line(row) for row in rows], border="horizontal", hide_index=True)
        header.links(page, {"Scrapes": statement}, "scrapes")


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [one_row(frame.iloc[[index]]) for index in range(len(frame))]


def _cost(page: Page, cover: dict[str, Any]) -> None:
    with st.container(border=True, key="card-cost-of-it"):
        st.markdown("**Cost of recording**")
        num_steps = int(page.row("SELECT count(*) AS n FROM steps")["n"] or 0)
        st.markdown(words.disk_line(recorder_data.log_bytes(page.path), num_steps))
        if not cover["num_rows"]:
            return
        st.markdown(
            f":gray[{NOT_MEASURED} not measured: what it cost while it was recorded. "
            "A log does not hold the recorder's own time.]"
        )
        usual = int(cover["usual_running"] or 1)
        if st.button(f"Measure a step of {plural(usual, 'request')} here", key="measure-cost"):
            _measure(usual)
        cost: RowCost | None = st.session_state.get(COST)
        if cost is not None and cost.num_requests == usual:
            st.markdown(
                words.cost_line(cost.p50_ns, cost.p99_ns, cost.num_requests, cover["usual_ns"])
            )
            st.caption(
                f"ᵈ {cost.num_calls:,} steps written into a ring on the machine of this dashboard; "
                "what the engine does to fill a row is not in it."
            )


def _measure(num_requests: int) -> None:
    try:
        st.session_state[COST] = recorder_data.measure(num_requests)
    except OSError as error:
        st.error(in_markdown(f"no ring can be made here: {error}", 200))


def _not_known(engine: EngineDiagnosis | None) -> None:
    if engine is None:
        return
    lines = words.not_known(engine)
    unused = words.not_in_use(engine)
    with st.container(border=True, key="card-not-known"):
        st.markdown("**What this source cannot know**")
        if not lines:
            st.markdown(":green[✓] Every rule had what it needs.")
        else:
            with st.container(key="not-known", height=420 if len(lines) > 12 else "content"):
                st.table(
                    [{"not measured": f":gray[–] {what}", "needs": needs} for what, needs in lines],
                    border="horizontal",
                    hide_index=True,
                )
        if unused:
            st.caption(unused)


def _others(page: Page, engines: list[EngineHealth], num_more: int) -> None:
    """Draws the other engine starts of the log, each with what is amiss in it."""
    own = engine_hex(page.scope.engine)
    others = [health for health in engines if health.engine != own]
    if not others:
        return
    with st.expander(f"{plural(len(others), 'other engine start')} in this log"):
        for health in others:
            st.markdown(f"**{health.engine}** &nbsp; {in_markdown(health.title, 160)}")
            amiss = [check for check in health.checks if check.level in ("warn", "bad")]
            _checks(amiss or [check for check in health.checks if check.name == "recording"])
        if num_more:
            st.caption(f"{plural(num_more, 'older engine start')} are not shown.")
