"""Findings: what was found, rejected, not measurable? One of them as a report to hand on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import streamlit as st

from dashboard import (
    added,
    clock,
    colours,
    document,
    drawing,
    header,
    links,
    picking,
    rule_page,
    states,
)
from dashboard import finding_words as words
from dashboard.charts.axis import TimeAxis
from dashboard.charts.scrapes import scraped_load
from dashboard.dialogs import dialog
from dashboard.queries import scrapes
from dashboard.report.writing import html_report, markdown_report
from dashboard.session import Page
from dashboard.style import MARKDOWN_COLOURS, SEVERITY_WORDS
from dashboard.timeline_data import SIDE_SPACE
from dashboard.untrusted import in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Bullets, Paragraph, Table, Text
from diagnose.finding import NO_FAULT, Finding, Severity
from diagnose.incident import one_finding as told
from diagnose.json_output import to_document
from diagnose.life import FindingState, is_closed
from diagnose.life.said import Lives, Said, read_lives, with_life, with_stored_shares
from diagnose.life.table import NOT_STORED, TITLE, life_table
from diagnose.rules import RULES
from diagnose.text.finding_text import PREEMPTION_RULES, told_shares, when_of
from diagnose.words import plural, time_of_day
from telemetry.errors import StepscopeError

NAME = "finding"
EVERY_SECONDS = 5
SENTENCE = 400
STACKED = [0.5, 0.5]
UNJUDGED = "– Not measured, and the signal that is missing"
MANY = 10
"""Rows of a table up to which half a page is wide enough for it."""
MARGIN = 56
"""Pixels of the width that a card takes for itself."""


def draw(page: Page) -> None:
    """Draws the finding that the address names, or the list of all, worst first."""
    states.lost(page)
    wanted, rule = links.taken(NAME), links.taken(rule_page.NAME)
    is_moving = page.is_live and not page.is_pinned
    try:
        if wanted is not None:
            _one(page, wanted)
            return
        if rule is not None:
            _back_to_all()
            rule_page.draw(page, page.diagnosis(), rule)
            return
        clock.repeated(_list, "findings", EVERY_SECONDS if is_moving else None)(page)
    except StepscopeError as error:
        states.unreadable(error)


# --------------------------------------------------------------------------------------- the list


def _list(page: Page) -> None:
    try:
        page = page.refreshed()
        engine = page.diagnosis()
        states.interrupted(page)
        if engine is None or _is_blank(engine):
            states.idle(page)
            return
        _all(page, engine)
    except StepscopeError as error:
        states.unreadable(error)


def _is_blank(engine: EngineDiagnosis) -> bool:
    if engine.metrics is not None:
        return not engine.metrics.num_scrapes
    return not engine.steps.num_rows and not engine.accounting.num_requests


def _all(page: Page, engine: EngineDiagnosis) -> None:
    lives = _lives(page)
    st.markdown(f"### {in_markdown(words.headline(engine), SENTENCE)}")
    if any(said.rule == NO_FAULT for said in engine.healthy):
        st.markdown(f":green[**✓ HEALTHY**]  {in_markdown(engine.verdict.sentence, SENTENCE)}")
    for is_open, title in ((True, "Open"), (False, "Cleared")):
        own = [finding for finding in engine.findings if finding.is_open is is_open]
        if own:
            st.markdown(f"**{title}**")
        for finding in own:
            _row(engine, finding, lives.of(finding))
    _earlier(page, engine, lives)
    unjudged = words.unjudged(engine)
    left, right = st.columns(STACKED, gap="small")
    with left, _card("healthy", "✓ Looked at and well, with the number that says so"):
        _table(page, words.healthy(engine), "healthy", "No check has enough to say so.")
    # Many want the whole width: below, where nothing stands beside them.
    with right if len(unjudged.rows) <= MANY else st.container(), _card("unjudged", UNJUDGED):
        _table(page, unjudged, "unjudged", "Every rule could judge.")
    with right, _card("silenced", "● Silenced, and by what"):
        _table(page, words.silenced(engine), "silenced", "Nothing was silenced.")


def _row(engine: EngineDiagnosis, finding: Finding, life: Said) -> None:
    with st.container(border=True, key=f"card-{finding.id}-{finding.severity.name}"):
        said, opens = st.columns([6, 1], vertical_alignment="center")
        parts = [finding.rule, when_of(finding, engine.scope.end_ts), life.words]
        meta = "  ·  ".join(part for part in parts if part)
        said.markdown(
            f"{_badge(finding.severity)}  :gray[:small[{in_markdown(meta, SENTENCE)}]]  \n"
            f"**{in_markdown(finding.sentence, SENTENCE)}**"
        )
        shared = with_stored_shares(finding, life.state)
        if shared.shares:
            said.caption(f"shares: {in_markdown(told_shares(shared), SENTENCE)}")
        if opens.button("Open", key=f"open-{finding.id}", width="stretch"):
            links.show("findings", finding=finding.id)


def _badge(severity: Severity) -> str:
    shape, _ = colours.SEVERITIES[severity]
    return f":{MARKDOWN_COLOURS[severity]}[**{shape} {SEVERITY_WORDS[severity]}**]"


def _earlier(page: Page, engine: EngineDiagnosis, lives: Lives) -> None:
    """Draws what the log remembers of findings that lie outside this window."""
    here = {finding.id for finding in engine.findings}
    rest = [state for state in _stored(page, lives) if state.finding not in here]
    if not rest:
        return
    with st.expander(f"{plural(len(rest), 'finding')} stored earlier, outside this window"):
        for state in rest:
            said = in_markdown(state.sentence or state.rule, SENTENCE)
            path = links.path(page, "findings", finding=state.finding)
            life = lives.of(state).words
            about = f"  :gray[:small[{in_markdown(life, SENTENCE)}]]" if life else ""
            name = f"[{in_markdown(state.finding)}]({path})"
            st.markdown(f"{_badge(state.severity)} {name} {said}{about}")


def _lives(page: Page) -> Lives:
    return read_lives(page.log, time.time_ns(), is_closed=is_closed(page.log))


def _stored(page: Page, lives: Lives) -> list[FindingState]:
    return [state for state in lives.states if state.engine == page.scope.engine]


@contextmanager
def _card(key: str, title: str) -> Iterator[None]:
    with st.container(border=True, key=f"card-{key}"):
        st.markdown(f"**{title}**")
        yield


def _table(page: Page, shown: Table, key: str, nothing: str) -> None:
    if shown.rows:
        document.table(shown, key=key, link=partial(rule_page.link, page))
    else:
        st.caption(nothing)


# ------------------------------------------------------------------------------------ one finding


def _back_to_all() -> None:
    if st.button("‹ All findings", key="all-findings", type="tertiary"):
        for part in (NAME, rule_page.NAME):
            st.query_params.pop(part, None)
        st.rerun(scope="app")


def _one(page: Page, wanted: str) -> None:
    _back_to_all()
    engine = page.diagnosis()
    found = [] if engine is None else [each for each in engine.findings if each.id == wanted]
    lives = _lives(page)
    if engine is None or not found:
        stored = next((each for each in _stored(page, lives) if each.finding == wanted), None)
        _elsewhere(page, engine, wanted, Said() if stored is None else lives.of(stored))
        return
    life = lives.of(found[0])
    finding = with_stored_shares(found[0], life.state)
    _head(page, engine, finding, life)
    left, right = st.columns(STACKED, gap="small")
    with left:
        with _card("short", "In short"):
            document.table(told.in_short(engine, finding), key="short")
        _life(life)
    with right, _card("todo", "What to do"):
        document.draw(page, told.what_to_do(finding), key="todo")
    with _card("window", "The engine in the window of the finding"):
        _charts(page, engine, finding)
    left, right = st.columns(STACKED, gap="small")
    with left, _card("happened", "What happened"):
        document.table(told.what_happened(page.log, engine, finding), key="happened")
    with right, _card("why", "Why we believe it"):
        document.draw(page, [*told.why(finding), *told.statements(finding)], key="why")
        _lacking(page, finding)
    if finding.affected:
        with _card("paid", "Who paid"):
            paid = told.who_paid(page.log, engine, finding)
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
            st.markdown(f"{_badge(finding.severity)}  :gray[:small[{in_markdown(meta, SENTENCE)}]]")
            st.markdown(f"### {in_markdown(finding.sentence, SENTENCE)}")
            st.markdown(_ways_on(page, finding))
        with actions:
            _downloads(page, finding)


def _ways_on(page: Page, finding: Finding) -> str:
    """Returns links to the pages that show the same window."""
    pages = [("Overview", "overview"), ("Requests", "requests")]
    if finding.rule in PREEMPTION_RULES:
        pages.insert(0, ("Preemptions explained", "preemptions"))
    ways = [f"[{title}]({links.path(page, name)})" for title, name in pages]
    if finding.rule in RULES:
        ways.append(f"[What the rule measures]({links.path(page, 'findings', rule=finding.rule)})")
    return "  ·  ".join(ways)


def _downloads(page: Page, finding: Finding) -> None:
    found = page.whole_diagnosis()
    whatifs = added.whatifs_of(page)
    st.download_button(
        "Report (HTML)",
        lambda: html_report(page.log, found, finding.id, whatifs),
        file_name=f"{finding.id}.html",
        mime="text/html",
        on_click="ignore",
        type="primary",
        width="stretch",
        key="report-html",
    )
    st.download_button(
        "Report (Markdown)",
        lambda: markdown_report(page.log, found, finding.id, whatifs),
        file_name=f"{finding.id}.md",
        mime="text/markdown",
        on_click="ignore",
        width="stretch",
        key="report-markdown",
    )
    if whatifs:
        st.caption(f"with {plural(len(whatifs), 'what-if')}")
    if st.button("Copy as JSON", width="stretch", key="report-json"):
        _show_json(page, finding)


@dialog("The finding as JSON")
def _show_json(page: Page, finding: Finding) -> None:
    found = page.whole_diagnosis()
    whole, said = with_life(page.log, found, time.time_ns(), is_closed=is_closed(page.log))
    documents = to_document(whole, {name: each.document for name, each in said.items()})
    own = next(each for each in documents["findings"] if each["id"] == finding.id)
    st.code(json.dumps(own, indent=2), language="json", height=520)


def _charts(page: Page, engine: EngineDiagnosis, finding: Finding) -> None:
    scope = told.window_of(engine, finding)
    shown = replace(page, scope=scope, width=page.width - MARGIN)
    if engine.metrics is not None:
        _scraped(shown, engine)
        return
    drawn = drawing.timeline_of(shown, engine)
    told_back = st.vega_lite_chart(
        spec=drawn.spec,
        width="content",
        theme=None,
        key=f"finding-{finding.id}-{page.theme}",
        on_select="rerun",
        selection_mode=picking.MODES,
    )
    with st.container(horizontal=True, horizontal_alignment="right"):
        header.links(shown, drawn.statements, "finding-window")
    picking.follow(shown, told_back, to="overview")


def _scraped(page: Page, engine: EngineDiagnosis) -> None:
    if engine.metrics is None or engine.metrics.source is None:
        st.caption("– not measured: no step record and no scrape in this window")
        return
    statement = scrapes.load(page.scope, engine.metrics.source)
    width = max(480, page.width - SIDE_SPACE)
    axis = TimeAxis(page.scope.start_ts, page.scope.end_ts, page.theme, width=width)
    chart = scraped_load(page.ask(statement), axis)
    st.altair_chart(chart, width="content", theme=None, key=f"finding-scrapes-{page.theme}")
    with st.container(horizontal=True, horizontal_alignment="right"):
        header.links(page, {"Scrapes": statement}, "finding-window")


def _lacking(page: Page, finding: Finding) -> None:
    lacking: tuple[Text, ...] = (*finding.missing, *finding.data_quality)
    if lacking:
        title = Paragraph("What this finding lacks:")
        document.draw(page, [title, Bullets(tuple(dict.fromkeys(lacking)))], key="lacking")


def _life(life: Said) -> None:
    with _card("life", TITLE):
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
        f"{_badge(state.severity)} {in_markdown(state.sentence or state.rule, SENTENCE)}",
        f"{in_markdown(state.rule)}, {state.status}, opened {opened} UTC. It lies outside this "
        "window; this is what is stored of it.",
    )
    if st.button("Look at its window", key="its-window"):
        margin = max((end - state.opened_ts) // 2, 30_000_000_000)
        header.choose_window(state.opened_ts - margin, end + margin)
    _life(life)
