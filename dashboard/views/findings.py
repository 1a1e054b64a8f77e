"""Findings: what was found, rejected, not measurable? One of them as a report to hand on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import streamlit as st

from dashboard import added, colours, document, header, links, picking, states
from dashboard import finding_words as words
from dashboard.charts.axis import TimeAxis
from dashboard.charts.scrapes import scraped_load
from dashboard.dialogs import dialog
from dashboard.queries import scrapes
from dashboard.report.writing import html_report, markdown_report
from dashboard.session import Page
from dashboard.style import MARKDOWN_COLOURS, SEVERITY_WORDS
from dashboard.timeline_data import SIDE_SPACE, build
from dashboard.untrusted import in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Bullets, Paragraph, Table, Text
from diagnose.finding import NO_FAULT, Finding, Severity
from diagnose.incident import one_finding as told
from diagnose.json_output import to_document
from diagnose.life import FindingState, is_closed, read_states
from diagnose.text.finding_text import PREEMPTION_RULES, shares_line, when_of
from diagnose.words import plural, time_of_day
from telemetry.errors import StepscopeError

NAME = "finding"
EVERY_SECONDS = 5
SENTENCE = 400
STACKED = [0.5, 0.5]
MARGIN = 56
"""Pixels of the width that a card takes for itself."""


def draw(page: Page) -> None:
    """Draws the finding that the address names, or the list of all, worst first."""
    states.lost(page)
    wanted = links.taken(NAME)
    is_moving = page.is_live and not page.is_pinned
    try:
        if wanted is not None:
            _one(page, wanted)
            return
        st.fragment(_list, run_every=EVERY_SECONDS if is_moving else None)(page)
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
    known = {state.finding: state for state in _stored(page)}
    st.markdown(f"### {in_markdown(words.headline(engine), SENTENCE)}")
    if any(said.rule == NO_FAULT for said in engine.healthy):
        st.markdown(f":green[**✓ HEALTHY**]  {in_markdown(engine.verdict.sentence, SENTENCE)}")
    for is_open, title in ((True, "Open"), (False, "Cleared")):
        own = [finding for finding in engine.findings if finding.is_open is is_open]
        if own:
            st.markdown(f"**{title}**")
        for finding in own:
            _row(engine, finding, known.get(finding.id))
    _earlier(page, engine, known)
    left, right = st.columns(STACKED, gap="small")
    with left, _card("healthy", "✓ Looked at and well, with the number that says so"):
        _table(page, words.healthy(engine), "healthy", "No check has enough to say so.")
    with right:
        with _card("unjudged", "– Not measured, and the signal that is missing"):
            _table(page, words.unjudged(engine), "unjudged", "Every rule could judge.")
        with _card("silenced", "● Silenced, and by what"):
            _table(page, words.silenced(engine), "silenced", "Nothing was silenced.")


def _row(engine: EngineDiagnosis, finding: Finding, state: FindingState | None) -> None:
    with st.container(border=True, key=f"card-{finding.id}-{finding.severity.name}"):
        said, opens = st.columns([6, 1], vertical_alignment="center")
        life = words.life_words(state, time.time_ns())
        parts = [finding.rule, when_of(finding, engine.scope.end_ts), life]
        meta = "  ·  ".join(part for part in parts if part)
        said.markdown(
            f"{_badge(finding.severity)}  :gray[:small[{in_markdown(meta, SENTENCE)}]]  \n"
            f"**{in_markdown(finding.sentence, SENTENCE)}**"
        )
        shares = words.with_stored_shares(finding, state).shares
        if shares:
            said.caption(f"shares: {in_markdown(shares_line(shares), SENTENCE)}")
        if opens.button("Open", key=f"open-{finding.id}", width="stretch"):
            links.show("findings", finding=finding.id)


def _badge(severity: Severity) -> str:
    shape, _ = colours.SEVERITIES[severity]
    return f":{MARKDOWN_COLOURS[severity]}[**{shape} {SEVERITY_WORDS[severity]}**]"


def _earlier(page: Page, engine: EngineDiagnosis, known: dict[str, FindingState]) -> None:
    """Draws what the log remembers of findings that lie outside this window."""
    here = {finding.id for finding in engine.findings}
    rest = [state for state in known.values() if state.finding not in here]
    if not rest:
        return
    with st.expander(f"{plural(len(rest), 'finding')} stored earlier, outside this window"):
        for state in rest:
            said = in_markdown(state.sentence or state.rule, SENTENCE)
            path = links.path(page, "findings", finding=state.finding)
            life = words.life_words(state, time.time_ns())
            about = f"  :gray[:small[{in_markdown(life, SENTENCE)}]]" if life else ""
            name = f"[{in_markdown(state.finding)}]({path})"
            st.markdown(f"{_badge(state.severity)} {name} {said}{about}")


def _stored(page: Page) -> list[FindingState]:
    states = read_states(page.log, is_closed=is_closed(page.log))
    return [state for state in states if state.engine == page.scope.engine]


@contextmanager
def _card(key: str, title: str) -> Iterator[None]:
    with st.container(border=True, key=f"card-{key}"):
        st.markdown(f"**{title}**")
        yield


def _table(page: Page, shown: Table, key: str, nothing: str) -> None:
    if shown.rows:
        document.table(shown, key=key)
    else:
        st.caption(nothing)


# ------------------------------------------------------------------------------------ one finding


def _one(page: Page, wanted: str) -> None:
    if st.button("‹ All findings", key="all-findings", type="tertiary"):
        st.query_params.pop(NAME, None)
        st.rerun(scope="app")
    engine = page.diagnosis()
    found = [] if engine is None else [each for each in engine.findings if each.id == wanted]
    state = next((each for each in _stored(page) if each.finding == wanted), None)
    if engine is None or not found:
        _elsewhere(page, engine, wanted, state)
        return
    finding = words.with_stored_shares(found[0], state)
    _head(page, engine, finding, state)
    left, right = st.columns(STACKED, gap="small")
    with left:
        with _card("short", "In short"):
            document.table(told.in_short(engine, finding), key="short")
        _life(state)
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


def _head(
    page: Page, engine: EngineDiagnosis, finding: Finding, state: FindingState | None
) -> None:
    with st.container(border=True, key=f"verdict-{finding.severity.name}"):
        said, actions = st.columns([5, 1.15], vertical_alignment="center", gap="large")
        with said:
            life = words.life_words(state, time.time_ns())
            when = when_of(finding, engine.scope.end_ts)
            rule = f"{finding.rule} v{finding.rule_version}"
            meta = "  ·  ".join(part for part in (rule, when, finding.id, life) if part)
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
    return "  ·  ".join(f"[{title}]({links.path(page, name)})" for title, name in pages)


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
    documents = to_document(page.whole_diagnosis())["findings"]
    own = next(each for each in documents if each["id"] == finding.id)
    st.code(json.dumps(own, indent=2), language="json", height=520)


def _charts(page: Page, engine: EngineDiagnosis, finding: Finding) -> None:
    scope = told.window_of(engine, finding)
    shown = replace(page, scope=scope, width=page.width - MARGIN)
    if engine.metrics is not None:
        _scraped(shown, engine)
        return
    timeline = build(shown, engine)
    told_back = st.altair_chart(
        timeline.chart,
        width="content",
        theme=None,
        key=f"finding-{finding.id}-{page.theme}",
        on_select="rerun",
        selection_mode=picking.MODES,
    )
    with st.container(horizontal=True, horizontal_alignment="right"):
        header.links(shown, timeline.statements, "finding-window")
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


def _life(state: FindingState | None) -> None:
    with _card("life", "Its life, as stored"):
        if state is None:
            st.caption(
                "No life is stored: findings are followed while a collector runs, and by "
                "`stepscope watch`."
            )
            return
        document.table(words.life_table(state, time.time_ns()), key="life")


def _elsewhere(
    page: Page, engine: EngineDiagnosis | None, wanted: str, state: FindingState | None
) -> None:
    """Says that a finding is not in this window, and where it is."""
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
    _life(state)
