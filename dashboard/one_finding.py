"""One finding: what it says, the engine in its window, what happened, why, who paid, what to do."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import streamlit as st

from dashboard import (
    document,
    drawing,
    finding_downloads,
    header,
    links,
    picking,
    rule_page,
    scraped,
    states,
    vega,
)
from dashboard.finding_cards import SENTENCE, STACKED, badge, card, lives_of, stored_states
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Bullets, Paragraph, Text
from diagnose.finding import Finding
from diagnose.incident.evidence import statements, what_happened, why
from diagnose.incident.one_finding import in_short, window_of
from diagnose.incident.what_to_do import what_to_do
from diagnose.incident.who_paid import who_paid
from diagnose.life.said import Said, with_stored_shares
from diagnose.life.table import NOT_STORED, TITLE, life_table
from diagnose.rules import RULES
from diagnose.text.finding_text import PREEMPTION_RULES, when_of
from diagnose.words import time_of_day

NAME = "finding"
"""The part of the address that names a finding."""
MARGIN = 56
"""Pixels of the width that a card takes for itself."""


def back_to_all() -> None:
    """Draws the way back from a finding, or a rule's page, to the list."""
    if st.button("‹ All findings", key="all-findings", type="tertiary"):
        for part in (NAME, rule_page.NAME):
            st.query_params.pop(part, None)
        st.rerun(scope="app")


def draw(page: Page, wanted: str) -> None:
    """Draws a finding of this window; of another one, what is stored of it."""
    back_to_all()
    engine = page.diagnosis()
    found = [] if engine is None else [each for each in engine.findings if each.id == wanted]
    lives = lives_of(page)
    if engine is None or not found:
        known = stored_states(page, lives)
        stored = next((each for each in known if each.finding == wanted), None)
        _elsewhere(page, engine, wanted, Said() if stored is None else lives.of(stored))
        return
    life = lives.of(found[0])
    finding = with_stored_shares(found[0], life.state)
    _head(page, engine, finding, life)
    left, right = st.columns(STACKED, gap="small")
    with left:
        with card("short", "In short"):
            document.table(in_short(engine, finding), key="short")
        _life(life)
    with right, card("todo", "What to do"):
        document.draw(page, what_to_do(finding), key="todo")
    with card("window", "The engine in the window of the finding"):
        _charts(page, engine, finding)
    left, right = st.columns(STACKED, gap="small")
    with left, card("happened", "What happened"):
        document.table(what_happened(page.log, engine, finding), key="happened")
    with right, card("why", "Why we believe it"):
        document.draw(page, [*why(finding), *statements(finding)], key="why")
        _lacking(page, finding)
    if finding.affected:
        with card("paid", "Who paid"):
            paid = who_paid(page.log, engine, finding)
            document.draw(page, paid, key="paid", link=partial(_story, page))


def _story(page: Page, number: str) -> str:
    """Returns a request's number as a link to its story."""
    return f"[{number}]({links.path(page, 'requests', request=number)})"


def _head(page: Page, engine: EngineDiagnosis, finding: Finding, life: Said) -> None:
    with st.container(border=True, key=f"verdict-{finding.severity.name}"):
        said, actions = st.columns([5, 1.15], vertical_alignment="center", gap="large")
        with said:
            when = when_of(finding, engine.scope.end_ts)
            rule = f"{finding.rule} v{finding.rule_version}"
            meta = "  ·  ".join(part for part in (rule, when, finding.id, life.words) if part)
            st.markdown(f"{badge(finding.severity)}  :gray[:small[{in_markdown(meta, SENTENCE)}]]")
            st.markdown(f"### {in_markdown(finding.sentence, SENTENCE)}")
            st.markdown(_ways_on(page, finding))
        with actions:
            finding_downloads.draw(page, finding)


def _ways_on(page: Page, finding: Finding) -> str:
    """Returns links to the pages that show the same window."""
    pages = [("Overview", "overview"), ("Requests", "requests")]
    if finding.rule in PREEMPTION_RULES:
        pages.insert(0, ("Preemptions explained", "preemptions"))
    ways = [f"[{title}]({links.path(page, name)})" for title, name in pages]
    if finding.rule in RULES:
        ways.append(f"[What the rule measures]({links.path(page, 'findings', rule=finding.rule)})")
    return "  ·  ".join(ways)


def _charts(page: Page, engine: EngineDiagnosis, finding: Finding) -> None:
    scope = window_of(engine, finding)
    shown = replace(page, scope=scope, width=page.width - MARGIN)
    if engine.metrics is not None:
        scraped.draw(shown, engine.metrics, "finding-scrapes")
        return
    drawn = drawing.timeline_of(shown, engine)
    key = f"finding-{finding.id}-{page.theme}"
    selected = vega.show_spec(drawn.spec, key=key, selections=picking.SELECTIONS)
    with st.container(horizontal=True, horizontal_alignment="right"):
        header.links(shown, drawn.statements, "finding-window")
    picking.follow(shown, selected, to="overview")


def _lacking(page: Page, finding: Finding) -> None:
    lacking: tuple[Text, ...] = (*finding.missing, *finding.data_quality)
    if lacking:
        title = Paragraph("What this finding lacks:")
        document.draw(page, [title, Bullets(tuple(dict.fromkeys(lacking)))], key="lacking")


def _life(life: Said) -> None:
    with card("life", TITLE):
        shown = life_table(life)
        if shown.rows:
            document.table(shown, key="life")
        if life.state is None:
            st.caption(NOT_STORED)


def _elsewhere(page: Page, engine: EngineDiagnosis | None, wanted: str, life: Said) -> None:
    """Says that a finding is not in this window, and where it is."""
    state = life.state
    if state is None:
        known = ", ".join(each.id for each in engine.findings) if engine else ""
        states.card(
            "card-unknown-quiet",
            ":gray[–] No such finding in this window",
            f"{in_markdown(wanted)} is not among them: {in_markdown(known or 'none', SENTENCE)}. "
            "Another window or engine may have it.",
        )
        return
    end = state.cleared_ts or state.changed_ts
    opened = time_of_day(state.opened_ts, 0)
    states.card(
        f"card-stored-{state.severity.name}",
        f"{badge(state.severity)} {in_markdown(state.sentence or state.rule, SENTENCE)}",
        f"{in_markdown(state.rule)}, {state.status}, opened {opened} UTC. It lies outside this "
        "window; this is what is stored of it.",
    )
    if st.button("Look at its window", key="its-window"):
        margin = max((end - state.opened_ts) // 2, 30_000_000_000)
        header.choose_window(state.opened_ts - margin, end + margin)
    _life(life)
