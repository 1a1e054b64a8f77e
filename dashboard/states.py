"""What a page says when there is little to show, and what it says first when something is amiss."""

from __future__ import annotations

import time

import streamlit as st

from dashboard import clock
from dashboard.session import Page, engine_label
from dashboard.untrusted import in_markdown, prose_in_markdown
from diagnose.facts import StepFacts
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.words import duration, time_of_day

RETRY_SECONDS = 5


def card(key: str, title: str, text: str, command: str | None = None) -> None:
    """Draws a card with a coloured edge: `key` ends in the severity that gives its colour."""
    with st.container(border=True, key=key):
        st.markdown(f"**{title}**  \n{text}")
        if command is not None:
            st.code(command, language=None)


def empty() -> None:
    """Says that nothing is recorded yet."""
    card(
        "card-empty-info",
        ":blue[●] Nothing recorded yet.",
        "No engine has published a step into this log. This shows which engines were seen:",
        "stepscope doctor",
    )


def idle(page: Page) -> None:
    """Says that an engine is there and has done nothing yet."""
    label = in_markdown(engine_label(page.engine))
    card(
        "card-idle-info",
        ":blue[●] Nothing recorded yet.",
        f"Engine **{label}** is attached and has not run a step in this window. "
        "`stepscope doctor` shows what is attached.",
    )


def unreadable(error: Exception) -> None:
    """Says that the log cannot be read, and why."""
    card(
        "card-unreadable-high", ":orange[▲] This log cannot be read", prose_in_markdown(str(error))
    )
    st.button("Retry", key="retry-unreadable")


def disconnected(page: Page, error: Exception, since: float, every: int) -> None:
    """Says that a live log does not answer any more; the page stays as it was."""
    age = duration(max(time.time_ns() - page.engine.newest_ts, 0))
    moment = time_of_day(int(since * 1e9), 0)
    card(
        "card-disconnected-high",
        f":orange[▲] Not live: collector not reachable since {moment}",
        f"The newest row is {age} old. Showing what was read until then; nothing below is live. "
        f"Next try in {every} s. {prose_in_markdown(str(error), 300)}",
    )
    st.button("Retry", key="retry-disconnected")


def lost(page: Page) -> None:
    """Says that a log that was live has no collector any more; looks for one again and again."""
    if not page.is_lost:
        return
    age = duration(max(time.time_ns() - page.engine.newest_ts, 0))
    card(
        "card-lost-high",
        f":orange[▲] Not live: no collector since {time_of_day(page.engine.newest_ts, 0)}",
        f"The newest row is {age} old, and the engine has not said goodbye. Showing what was "
        f"written until then; nothing below is live. Next try in {RETRY_SECONDS} s.",
    )
    st.button("Retry", key="retry-lost")
    clock.repeated(_look_again, "lost", RETRY_SECONDS)(page)


def _look_again(page: Page) -> None:
    if page.log.is_live:
        st.rerun(scope="app")


def interrupted(page: Page) -> None:
    """Says that the engine went without a word."""
    engine = page.engine
    if not engine.is_interrupted or engine.end_ts is None:
        return
    step = "" if engine.end_step is None else f"Last step {engine.end_step:,} "
    card(
        "card-interrupted-high",
        ":orange[▲] The engine stopped without saying goodbye.",
        f"{step}at {time_of_day(engine.end_ts)}, process gone. Everything published before is "
        "here; requests that were running have no end.",
    )


def partial(steps: StepFacts) -> None:
    """Says how much of the record is missing."""
    if not steps.num_steps_missing:
        return
    share = f"{100 * steps.missing_ratio:.1f} %"
    card(
        "card-partial-high",
        f":orange[▲] {share} of steps missing, counts are lower bounds.",
        f"{steps.num_steps_missing:,} of {steps.num_steps + steps.num_steps_missing:,} steps are "
        "not in the record. Gaps are hatched and never bridged.",
    )


def no_steps(facts: MetricFacts) -> None:
    """Says that an engine is known by scrapes alone, and what would show the rest."""
    not_measured(
        "steps",
        "no step record",
        f"This engine is known {in_markdown(facts.told_by)}: who ran, who waited and who was "
        "evicted is not in it.",
        "Install stepscope beside vLLM and set `STEPSCOPE_LOG` to record it from then on.",
    )


def not_measured(key: str, title: str, missing: str, remedy: str) -> None:
    """Says what is not measured and how to get it, in the place of the panel."""
    card(f"card-{key}-quiet", f":gray[–] Not measured: {title}", f"{missing} {remedy}")
