"""Preemptions: why are requests thrown out, whose fault is it, what did it cost, who paid?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import clock, colours, header, links, states, vega
from dashboard import preemption_words as words
from dashboard.charts.evictions import CHOSEN, GRID_CELLS, MAX_MARKS, cost_bar, eviction_map
from dashboard.charts.lag import counter_lag
from dashboard.colours import Theme
from dashboard.queries import preemptions as queries
from dashboard.session import Page
from dashboard.starts import one_row
from dashboard.untrusted import in_markdown
from diagnose.accounting import Accounting
from diagnose.diagnosis import EngineDiagnosis
from diagnose.life import read_states
from diagnose.life.shares import shares_words
from diagnose.text.metric_report import account_line
from diagnose.words import count, duration, plural
from telemetry.errors import StepscopeError

EVERY_SECONDS = 5
MAX_HARDEST = 10
LONGEST_LIST = 60
"""Characters of the list of who got a request's blocks."""
LEFT, RIGHT = 0.45, 0.55
"""Shares of the page's width of the two columns."""
INSIDE = 44
"""Pixels of a column that are not its card's content."""
STACKED_BELOW = 1120
"""Width of a page in pixels under which the columns stand under each other."""


def draw(page: Page) -> None:
    """Draws the page; on a live log it keeps itself up to date."""
    states.lost(page)
    is_moving = page.is_live and not page.is_pinned
    clock.repeated(_explain, "explained", EVERY_SECONDS if is_moving else None)(page)


def _explain(page: Page) -> None:
    try:
        page = page.refreshed()
        engine = page.diagnosis()
        if engine is None:
            states.empty()
            return
        if engine.metrics is not None:
            st.markdown(f"### {in_markdown(account_line(engine.accounting), 200)}")
            states.no_steps(engine.metrics)
            return
        states.interrupted(page)
        states.partial(engine.steps)
        _page(page, engine)
    except StepscopeError as error:
        states.unreadable(error)


def _page(page: Page, engine: EngineDiagnosis) -> None:
    account = engine.accounting
    is_partial = engine.steps.num_steps_missing > 0
    st.markdown(f"### {in_markdown(words.headline(account, is_partial=is_partial), 200)}")
    evidence = page.ask(queries.evidence(page.scope))
    steps = int(page.row(queries.steps_that_preempted(page.scope))["num_steps"] or 0)
    which = f"[{plural(steps, 'step')}]({links.path(page, 'steps')})"
    tail = f" &nbsp;·&nbsp; {which}, and in each of them nothing was admitted"
    st.markdown(words.account_line(account) + (tail if account.num_from_kv else ""))
    if not account.num_rows:
        return
    left, right = st.columns([LEFT, RIGHT], gap="small")
    with left:
        _who_evicted_whom(page, account)
    with right:
        _cost(page, engine)
        _hardest(page, account.num_affected)
    left, right = st.columns([LEFT, RIGHT], gap="small")
    with left:
        _changes(page, account.num_rows)
    with right:
        _evidence(page, evidence)
        _lag(page, engine)


def _inside(page: Page, share: float) -> int:
    """Returns the width of a column's content, in pixels."""
    return int(page.width * (1.0 if page.width < STACKED_BELOW else share)) - INSIDE


def _who_evicted_whom(page: Page, account: Accounting) -> None:
    statement = queries.marks(page.scope, MAX_MARKS + 1)
    marks = page.ask(statement)
    if len(marks) > MAX_MARKS:
        statement = queries.grid(page.scope, GRID_CELLS)
        marks = page.ask(statement)
    with st.container(border=True, key="card-whom"):
        _title(page, "Who evicted whom", {"Who evicted whom": statement}, "whom")
        if marks.empty:
            states.not_measured(
                "whom",
                "who evicted whom",
                "This log has a count of preemptions, not their victims.",
                "Install the recorder in the engine to see them.",
            )
            return
        st.caption(_map_caption(marks))
        chart = eviction_map(
            marks,
            width=_inside(page, LEFT),
            theme=page.theme,
            payers=(account.num_newer_paid, account.num_itself_paid, account.num_older_paid),
            by_priority=bool(marks["by_priority"].iloc[0]),
        )
        selections = () if "n" in marks else (CHOSEN,)
        selected = vega.show(chart, key=f"map-{page.theme}", selections=selections)
    _follow(selected)


def _map_caption(marks: pd.DataFrame) -> str:
    if "n" in marks:
        return (
            f"{int(marks['n'].sum()):,} preemptions on a grid, darker = more computed tokens lost; "
            "axes count arrivals"
        )
    low, high = int(marks["lost"].min()), int(marks["lost"].max())
    return (
        f"one mark per preemption, larger = more computed tokens lost ({low:,} to {high:,}); "
        "hollow = evicted itself; axes count arrivals"
    )


def _follow(selected: Mapping[str, Any]) -> None:
    chosen = selected.get(CHOSEN) or []
    if chosen and chosen != st.session_state.get("last_mark"):
        st.session_state["last_mark"] = chosen
        show_request(int(chosen[0]["request"]))


def show_request(number: int) -> None:
    """Goes to the story of one request."""
    st.session_state["address_request"] = str(number)
    st.switch_page(st.session_state["pages"]["requests"])


def _cost(page: Page, engine: EngineDiagnosis) -> None:
    account = engine.accounting
    lost = account.loss.num_lost
    with st.container(border=True, key="card-cost"):
        statement = {"What it cost": account.sql}
        if lost is None:
            _title(page, "What it cost", statement, "cost")
            st.markdown(":gray[– not measured: request_events.num_computed_tokens_lost]")
            return
        _title(page, f"What it cost: {lost:,} computed tokens thrown away", statement, "cost")
        parts = words.cost_parts(account.loss)
        tints = _cost_colours(page.theme)
        drawn = [
            (said, tokens, tints[index % len(tints)]) for index, (said, tokens) in enumerate(parts)
        ]
        said = " &nbsp; ".join(
            f"{'**' if index == 0 else ''}{tokens:,} {text} ({100 * tokens / max(lost, 1):.0f} %)"
            f"{'**' if index == 0 else ''}"
            for index, (text, tokens) in enumerate(parts)
        )
        st.markdown(said or "0 tokens")
        if drawn:
            width = _inside(page, RIGHT)
            chart = cost_bar(drawn, width=width, theme=page.theme)
            vega.show(chart, key=f"cost-{page.theme}")
        st.caption(words.cost_line(account))


def _cost_colours(theme: Theme) -> list[str]:
    return [
        colour.of(theme)
        for colour in (
            colours.LOST,
            colours.CACHED,
            colours.HELD,
            colours.UNATTRIBUTED,
            colours.EVICTED,
        )
    ]


def _hardest(page: Page, num_affected: int) -> None:
    statement = queries.victims(page.scope)
    victims = page.ask(statement).head(MAX_HARDEST)
    with st.container(border=True, key="card-hardest"):
        _title(page, "Hit hardest", {"Hit hardest": statement}, "hardest")
        rows = [_victim(page, one_row(victims.iloc[[index]])) for index in range(len(victims))]
        with st.container(key="doc-hardest-c1-c2-c3-c4-c5"):
            st.table(rows, border="horizontal", hide_index=True, alt="Hit hardest")
        if num_affected > len(victims):
            every = f"[all requests]({links.path(page, 'requests')})"
            st.caption(
                f"Showing {len(victims):,} of {num_affected:,} requests, worst first: {every}."
            )


def _victim(page: Page, row: dict[str, Any]) -> dict[str, str]:
    number = int(row["request"])
    return {
        "request": f"[{number}]({links.path(page, 'requests', request=str(number))})",
        "times": f"**{_whole(row['times'])}**",
        "tokens lost": _whole(row["tokens_lost"]),
        "recomputed": _whole(row["recomputed"]),
        "time out": duration(row["out_ns"]),
        "its blocks went to": in_markdown(row["went_to"], LONGEST_LIST),
        "its id": in_markdown(row["request_id"]),
    }


def _whole(value: Any) -> str:
    return count(None if value is None else int(value))


def _changes(page: Page, num_preemptions: int) -> None:
    explained = page.explanation()
    with st.container(border=True, key="card-changes"):
        st.markdown("**What changed, and what did not**")
        if explained is None:
            st.caption("No episode for want of blocks: there is no change to look for.")
            return
        st.caption(
            "preemptions charged to each change of state; the number is what confirmed or "
            "rejected it"
        )
        rows = words.change_rows(explained[0], num_preemptions, explained[1])
        with st.container(key="changes"):
            st.table(
                [
                    {
                        "change": _marked(row),
                        "evidence": in_markdown(row.number, 120),
                        "preemptions": f"**{row.num_preemptions:,}**"
                        if row.num_preemptions
                        else "0",
                    }
                    for row in rows
                ],
                border="horizontal",
                hide_index=True,
            )
        stored = _stored_shares(page) if page.is_live and not explained[0].shares else ""
        if stored:
            st.caption(f"shares, by the analyst's replays: {in_markdown(stored, 300)}")


def _stored_shares(page: Page) -> str:
    """Returns what the analyst worked out of a storm that is open; a live page replays nothing."""
    states = (state for state in read_states(page.log) if state.engine == page.scope.engine)
    return next((shares_words(each.shares) for each in states if each.is_open and each.shares), "")


def _marked(row: words.ChangeRow) -> str:
    name = in_markdown(row.name)
    if row.mark == "▲":
        return f":orange[▲] **{name}**"
    return f":green[✓] {name}" if row.mark == "✓" else f":gray[– {name}]"


def _evidence(page: Page, evidence: pd.DataFrame) -> None:
    with st.container(border=True, key="card-evidence"):
        st.markdown("**Evidence**")
        rows = "\n".join(
            "-- " + " | ".join(str(value) for value in row)
            for row in evidence.itertuples(index=False)
        )
        st.code(f"{queries.evidence(page.scope)}\n{rows}", language="sql", wrap_lines=True)


def _lag(page: Page, engine: EngineDiagnosis) -> None:
    statement = queries.counter(page.scope)
    scraped = page.ask(statement)
    if scraped.empty:
        return
    recorded_sql = queries.cumulative(page.scope)
    with st.container(border=True, key="card-lag"):
        _title(
            page,
            "Why the scraped counter looked calm",
            {"Scraped": statement, "Recorded": recorded_sql},
            "lag",
        )
        st.caption("cumulative preemptions; a victim may be counted only with its next output")
        width = _inside(page, RIGHT)
        chart = counter_lag(
            page.ask(recorded_sql), scraped, scope=engine.scope, width=width, theme=page.theme
        )
        vega.show(chart, key=f"lag-{page.theme}")


def _title(page: Page, title: str, statements: dict[str, str], key: str) -> None:
    with st.container(horizontal=True, horizontal_alignment="distribute"):
        st.markdown(f"**{title}**", width="content")
        header.links(page, statements, key)
