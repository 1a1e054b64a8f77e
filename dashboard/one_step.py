"""One step, worked out: its arithmetic, who held which blocks, and where to go from here."""

from __future__ import annotations

import streamlit as st

from dashboard import colours, header, states, step_cards, step_data, step_words, vega
from dashboard.charts.axis import AXIS_SPACE
from dashboard.charts.blocks import block_chart, choose
from dashboard.queries import steps as queries
from dashboard.session import Page
from dashboard.step_blocks import block_map
from dashboard.untrusted import in_markdown, prose_in_markdown
from diagnose.words import NOT_MEASURED, duration, plural, time_of_day
from telemetry.errors import StepscopeError
from telemetry.step_facts import StepFacts

NAME = "step"
"""The part of the address that names a step."""
MAX_WAITING = 200
SHARES = (0.4, 0.3, 0.3)
"""Parts of the page's width: evictions, batch, time and queue; the first only where there are any.
"""


def draw(page: Page, number: int) -> bool:
    """Draws a step, or which ones beside it there are; returns whether the log holds any step."""
    try:
        facts, statements = step_data.read(page, number)
    except StepscopeError as error:
        _missing(page, number, error)
        return True
    if facts is None:
        return False
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
            step_cards.evictions(facts)
    with middle:
        step_cards.batch(page, facts, statements["The state it began with"])
    with right:
        step_cards.time(page, facts, shares[-1] / sum(shares))
        step_cards.waiting(page, facts, statements["Who waits"])
    step_cards.served(facts)
    return True


def go_to(number: int | None) -> None:
    """Goes to a step, or back to the list."""
    if number is None:
        st.query_params.pop(NAME, None)
    else:
        st.query_params[NAME] = str(number)
    st.rerun(scope="app")


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
        st.markdown(prose_in_markdown(str(error), 300))
    with st.container(horizontal=True, key="steps-beside"):
        _button("All notable steps", None, "all")
        if before is not None:
            _button(f"‹ {int(before):,}, the last one before", int(before), "before")
        if after is not None:
            _button(f"{int(after):,}, the first one after ›", int(after), "after")


def _button(text: str, number: int | None, key: str, *, disabled: bool = False) -> None:
    if st.button(text, key=key, disabled=disabled):
        go_to(number)


def _headline(page: Page, facts: StepFacts, statements: dict[str, str]) -> None:
    said, moves = st.columns([3, 2])
    with said:
        st.markdown(f"### {in_markdown(step_words.title(facts), 300)}")
        st.markdown(_facts(facts))
    with (
        moves,
        st.container(
            horizontal=True,
            horizontal_alignment="right",
            vertical_alignment="center",
            gap="xsmall",
            key="moves",
        ),
    ):
        _moves(page, statements["Where to go from here"])
        header.links(page, statements, "step")


def _facts(facts: StepFacts) -> str:
    step = facts.step
    stop = step["stop_name"]
    stopped = NOT_MEASURED if stop is None else step_cards.reason(stop)
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
    vega.show(chart, key=f"blocks-{facts.asked}-{page.theme}-{width}")


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
