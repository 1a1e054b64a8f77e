"""Steps: what exactly did the scheduler do here? The notable ones; and one of them, worked out."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard import address, colours, header, links, states, step_data, step_words
from dashboard.charts.axis import AXIS_SPACE
from dashboard.charts.blocks import block_chart, choose
from dashboard.charts.phases import phase_bar
from dashboard.queries import header as window_queries
from dashboard.queries import steps as queries
from dashboard.queries.steps import Notable
from dashboard.session import Page
from dashboard.starts import one_row
from dashboard.step_blocks import block_map
from dashboard.untrusted import in_markdown
from diagnose.words import NOT_MEASURED, count, duration, plural, time_of_day
from telemetry.errors import StepscopeError
from telemetry.step_facts import StepFacts
from telemetry.vocabulary import StopReason

EVERY_SECONDS = 5
NAME = "step"
KINDS = {
    Notable.EVICTED: "Most evictions",
    Notable.LONGEST: "Longest",
    Notable.NOTHING: "Nothing scheduled",
    Notable.SHORT: "Shortest of blocks",
}
NONE_OF_KIND = {
    Notable.EVICTED: "Nobody was evicted in this window.",
    Notable.LONGEST: "No step of this window has its end on record.",
    Notable.NOTHING: "Whenever somebody waited, something was scheduled.",
    Notable.SHORT: "The queue head was never short of blocks.",
}
MAX_WAITING = 200
MAX_LINES = 200
SHARES = (0.4, 0.3, 0.3)
"""Parts of the page's width: evictions, batch, time and queue; the first only where there are any.
"""
INSIDE = 62
"""Pixels of a column that are not its card's content."""
STACKED_BELOW = 1120


def draw(page: Page) -> None:
    """Draws the step that the address names, or the list of the notable ones."""
    states.lost(page)
    number = address.parse_request(links.taken(NAME))
    is_moving = page.is_live and not page.is_pinned
    try:
        if number is not None:
            _inspect(page, number)
            return
        states.interrupted(page)
        st.fragment(_list, run_every=EVERY_SECONDS if is_moving else None)(page)
    except StepscopeError as error:
        states.unreadable(error)


def _go_to(number: int | None) -> None:
    if number is None:
        st.query_params.pop(NAME, None)
    else:
        st.query_params[NAME] = str(number)
    st.rerun(scope="app")


# --------------------------------------------------------------------------------------- the list


def _list(page: Page) -> None:
    page = page.refreshed()
    if not page.row(window_queries.window(page.scope))["num_rows"]:
        _nothing(page)
        return
    st.markdown("### Steps worth a look, the most notable first")
    chosen, wanted = st.columns([3, 1], vertical_alignment="bottom")
    kind = chosen.segmented_control(
        "Notable for", list(KINDS), default=Notable.EVICTED, format_func=KINDS.__getitem__, key="by"
    )
    number = wanted.number_input(
        "Step", min_value=0, value=None, step=1, key="go", placeholder="a step's number"
    )
    if number is not None:
        _go_to(int(number))
    _table(page, kind or Notable.EVICTED)


def _nothing(page: Page) -> None:
    """Says why there are no steps: a source of scrapes, or an engine that has done nothing yet."""
    engine = page.diagnosis()
    if engine is not None and engine.metrics is not None:
        st.markdown("### No step is in a scrape")
        states.no_steps(engine.metrics)
        return
    states.idle(page)


def _table(page: Page, kind: Notable) -> None:
    statement = queries.notable(page.scope, kind)
    rows = page.ask(statement)
    if rows.empty:
        st.caption(NONE_OF_KIND[kind])
        header.links(page, {KINDS[kind]: statement}, "notable")
        return
    total = int(rows["num_all"].iloc[0])
    said = f"Showing {len(rows):,} of {plural(total, 'step')}, {KINDS[kind].lower()} first."
    st.caption(f"{said} Choose a row to see what the scheduler did there.")
    told = st.dataframe(
        rows.drop(columns="num_all"),
        hide_index=True,
        height=min(620, 40 + 31 * len(rows)),
        row_height=31,
        column_config=_columns(),
        on_select="rerun",
        selection_mode="single-row",
        key=f"notable-{kind.name}",
        placeholder=NOT_MEASURED,
        alt=said,
    )
    header.links(page, {KINDS[kind]: statement}, "notable")
    if told.selection.rows:
        _go_to(int(rows.iloc[told.selection.rows[0]]["step"]))


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "step": number("step", format="localized"),
        "time": st.column_config.TextColumn("time, UTC"),
        "took_ms": number("took, ms", format="%.1f"),
        "num_repeats": number("steps like it", format="localized"),
        "num_running": number("running", format="localized"),
        "num_waiting": number("waiting", format="localized"),
        "num_preempted": number("evicted", format="localized"),
        "num_scheduled_tokens": number("tokens", format="localized"),
        "num_blocks_free": number("free blocks", format="localized"),
        "head_blocks_needed": number("head needs", format="localized"),
        "stop_reason": st.column_config.TextColumn("admission stopped"),
    }


# --------------------------------------------------------------------------------------- one step


def _inspect(page: Page, number: int) -> None:
    try:
        facts, statements = step_data.read(page, number)
    except StepscopeError as error:
        _missing(page, number, error)
        return
    if facts is None:
        _nothing(page)
        return
    engine, step = page.scope.engine, int(facts.step["step"])
    statements = statements | {
        "Where to go from here": queries.neighbours(engine, step),
        "The state it began with": queries.state_before(engine, step),
        "Who waits": queries.waiting_requests(engine, int(facts.step["ts"]), MAX_WAITING),
    }
    _headline(page, facts, statements)
    _blocks(page, facts)
    shares = SHARES if facts.preemptions() else SHARES[1:]
    *left, middle, right = st.columns(shares, gap="small")
    if left:
        with left[0]:
            _evictions(facts)
    with middle:
        _batch(page, facts, statements["The state it began with"])
    with right:
        _time(page, facts, shares[-1] / sum(shares))
        _waiting(page, facts, statements["Who waits"])
    _served(facts)


def _missing(page: Page, number: int, error: StepscopeError) -> None:
    """Says that a step is not in the record, and which ones beside it are."""
    at = page.row(queries.neighbours(page.scope.engine, number))
    before, after = at["before"], at["after"]
    st.markdown(f"### Step {number:,} is not in the record.")
    if before is not None and after is not None:
        states.card(
            "card-missing-high",
            ":orange[▲] It lies in a gap",
            "The steps around it were dropped before they could be written. Gaps are hatched on "
            "the overview and never bridged; the recorder's page counts them.",
        )
    else:
        st.markdown(in_markdown(str(error), 300))
    with st.container(horizontal=True, key="steps-beside"):
        _button("All notable steps", None, "all")
        if before is not None:
            _button(f"‹ {int(before):,}, the last one before", int(before), "before")
        if after is not None:
            _button(f"{int(after):,}, the first one after ›", int(after), "after")


def _button(text: str, number: int | None, key: str, *, disabled: bool = False) -> None:
    if st.button(text, key=key, disabled=disabled):
        _go_to(number)


def _headline(page: Page, facts: StepFacts, statements: dict[str, str]) -> None:
    said, moves = st.columns([3, 2])
    with said:
        st.markdown(f"### {in_markdown(step_words.title(facts), 300)}")
        st.markdown(_facts(facts))
    with moves, st.container(horizontal=True, horizontal_alignment="right", key="moves"):
        _moves(page, statements["Where to go from here"])
        header.links(page, statements, "step")


def _facts(facts: StepFacts) -> str:
    step = facts.step
    stop = step["stop_name"]
    stopped = NOT_MEASURED if stop is None else _reason(stop)
    parts = [
        f"{time_of_day(int(step['ts']), 3)} UTC",
        f"took {duration(step_words.took_ns(facts))}",
        f"admission stopped: {stopped}",
    ]
    why = step_words.why_stopped(facts)
    if why not in step_words.title(facts):
        parts.append(in_markdown(why, 200))
    if step["updated_ts"] is None:
        parts[1] = "its end is not recorded: the engine was in it, or stopped in it"
    if step["num_repeats"] > 1:
        last = step["step"] + step["num_repeats"] - 1
        parts.append(f"steps {step['step']:,} to {last:,} were equal, told once")
    return " &nbsp;·&nbsp; ".join(parts)


def _moves(page: Page, statement: str) -> None:
    at = page.row(statement)
    _button("All", None, "all")
    for key, text in (
        ("before", "‹ {}"),
        ("after", "{} ›"),
        ("preemption", "next preemption: {} ››"),
        ("stop_change", "next stop reason: {} ››"),
    ):
        number = at[key]
        shown = text.format(NOT_MEASURED if number is None else f"{int(number):,}")
        _button(shown, None if number is None else int(number), key, disabled=number is None)


def _blocks(page: Page, facts: StepFacts) -> None:
    blocks = block_map(facts)
    if blocks is None:
        states.not_measured(
            "blocks",
            "who held which blocks, who was served in which order",
            "The log holds this step and its events, not its requests one by one.",
            step_words.what_would_keep(facts),
        )
        return
    width = max(240, page.width - AXIS_SPACE - 18)
    drawn = choose(blocks, width)
    if not drawn.visits:
        st.caption(f"No block of {plural(drawn.num_all, 'request')} changed hands in this step.")
        return
    st.html(_key(page))
    if not blocks.has_before:
        st.caption(
            "The step before is not stored: what was given in this one is drawn as kept. "
            + step_words.what_would_keep(facts)
        )
    elif blocks.num_free is None:
        st.caption(
            "– free blocks after each visit: the rows do not add up to it, since blocks are "
            "shared, loaded or not recorded."
        )
    chart = block_chart(
        blocks, drawn, width=width, theme=page.theme, block_size=facts.engine.get("block_size")
    )
    st.altair_chart(
        chart, width="content", theme=None, key=f"blocks-{facts.asked}-{page.theme}-{width}"
    )


def _key(page: Page) -> str:
    """Returns the block map's key. Nothing from a log is in it."""
    kept, given, taken = (
        colour.of(page.theme) for colour in (colours.USEFUL, colours.PREFILL, colours.EVICTED)
    )
    return (
        f'<p class="block-key"><i style="background:{kept}"></i> block kept '
        f'<i style="background:{given}"></i> block given in this step '
        f'<i class="taken" style="border-color:{taken}"></i> block taken away '
        "<span>numbers under the squares: request</span></p>"
    )


# -------------------------------------------------------------------------------------- the cards


def _evictions(facts: StepFacts) -> None:
    lines = step_words.evictions(facts)
    with st.container(border=True, key="card-evictions"):
        st.markdown(f"**{plural(len(lines), 'eviction')}, in order**")
        st.caption(step_words.rules(facts))
        if len(lines) > MAX_LINES:
            st.caption(f"Showing {MAX_LINES:,} of {len(lines):,}, the first ones.")
        with st.container(key="evictions", height=420 if len(lines) > 10 else "content"):
            st.table(lines[:MAX_LINES], border="horizontal", hide_index=True)


def _batch(page: Page, facts: StepFacts, statement: str) -> None:
    before = page.ask(statement)
    state = None if before.empty else one_row(before)
    if state is not None:
        state = {k: int(v) if isinstance(v, float) else v for k, v in state.items()}
    with st.container(border=True, key="card-batch"):
        st.markdown("**The batch**")
        with st.container(key="batch"):
            st.table(
                [
                    {" ": f":gray[{name}]", "  ": value}
                    for name, value in step_words.batch_numbers(facts, state)
                ],
                border="horizontal",
                hide_index=True,
            )


def _time(page: Page, facts: StepFacts, share: float) -> None:
    parts = step_words.phases(facts)
    took = duration(step_words.took_ns(facts))
    with st.container(border=True, key="card-time"):
        if not parts:
            st.markdown("**Where the time went**")
            st.markdown(f":gray[{NOT_MEASURED} not measured: the phases of this step]")
            return
        st.markdown(f"**Where the {took} went**")
        width = page.width if page.width < STACKED_BELOW else int(page.width * share)
        st.altair_chart(
            phase_bar(parts, width=max(200, width - INSIDE), theme=page.theme),
            width="content",
            theme=None,
            key=f"phases-{facts.asked}-{page.theme}-{width}",
        )
        st.markdown(" &nbsp; ".join(f":gray[{name}] **{duration(ns)}**" for name, ns in parts))


def _waiting(page: Page, facts: StepFacts, statement: str) -> None:
    step = facts.step
    with st.container(border=True, key="card-waiting"):
        st.markdown(f"**Waiting after this step: {count(step['num_waiting'])}**")
        rows = page.ask(statement) if step["num_waiting"] else pd.DataFrame()
        if not rows.empty:
            total = int(rows["num_all"].iloc[0])
            if total > len(rows):
                st.caption(f"Showing {len(rows):,} of {total:,} requests.")
            _who_waits(rows, step["head_request"])
        st.caption(step_words.waiting_line(facts))


def _who_waits(rows: pd.DataFrame, head: int | None) -> None:
    told = rows.astype({"wait_reason": object}).to_dict("records")
    lines = step_words.grouped([{str(k): v for k, v in row.items()} for row in told], head)
    with st.container(key="waiting", height=360 if len(lines) > 9 else "content"):
        st.table(
            [
                {
                    "request": step_words.who(line, head),
                    "reason": _reason(line["wait_reason"]),
                    "evicted": _times(line),
                }
                for line in lines
            ],
            border="horizontal",
            hide_index=True,
        )


def _reason(name: Any) -> str:
    """Returns the engine's own word for why; the one that a preemption costs has its colour."""
    if name is None or pd.isna(name):
        return f":gray[{NOT_MEASURED} not recorded]"
    shown = f"**{in_markdown(str(name))}**"
    return f":violet[{shown}]" if name == StopReason.preempted_this_step.name else shown


def _times(line: dict[str, Any]) -> str:
    times = plural(int(line["times"]), "time")
    return times if line["num"] == 1 else f"{times} each"


def _served(facts: StepFacts) -> None:
    lines = step_words.served(facts)
    title = "In the order in which the scheduler served them"
    if not lines:
        lines = step_words.let_in(facts)
        title = "Let in, in order"
    if not lines:
        return
    with st.container(border=True, key="card-served"):
        st.markdown(f"**{title}: {plural(len(lines), 'request')}**")
        number = st.column_config.NumberColumn
        names = [name for name in lines[0] if name not in ("request", "note")]
        st.dataframe(
            pd.DataFrame(lines),
            hide_index=True,
            height=min(460, 40 + 31 * len(lines)),
            row_height=31,
            column_config={"request": number("request", format="%d")}
            | {name: number(name, format="localized") for name in names},
            placeholder=NOT_MEASURED,
            alt=f"{title}: {plural(len(lines), 'request')}",
        )
