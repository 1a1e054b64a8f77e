"""Findings: what was found, rejected, not measurable? The list of all, worst first."""

from __future__ import annotations

from functools import partial

import streamlit as st

from dashboard import clock, document, links, one_finding, rule_page, states
from dashboard import finding_words as words
from dashboard.finding_cards import SENTENCE, STACKED, badge, card, lives_of, stored_states
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.document import Table
from diagnose.finding import NO_FAULT, Finding
from diagnose.life.said import Lives, Said, with_stored_shares
from diagnose.text.finding_text import told_shares, when_of
from diagnose.words import plural
from telemetry.errors import StepscopeError

EVERY_SECONDS = 5
UNJUDGED = "– Not measured, and the signal that is missing"
MANY = 10
"""Rows of a table up to which half a page is wide enough for it."""


def draw(page: Page) -> None:
    """Draws the finding that the address names, or the list of all, worst first."""
    states.lost(page)
    wanted, rule = links.taken(one_finding.NAME), links.taken(rule_page.NAME)
    is_moving = page.is_live and not page.is_pinned
    try:
        if wanted is not None:
            one_finding.draw(page, wanted)
            return
        if rule is not None:
            one_finding.back_to_all()
            rule_page.draw(page, page.diagnosis(), rule)
            return
        clock.repeated(_list, "findings", EVERY_SECONDS if is_moving else None)(page)
    except StepscopeError as error:
        states.unreadable(error)


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
    lives = lives_of(page)
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
    with left, card("healthy", "✓ Looked at and well, with the number that says so"):
        _table(page, words.healthy(engine), "healthy", "No check has enough to say so.")
    # Many want the whole width: below, where nothing stands beside them.
    with right if len(unjudged.rows) <= MANY else st.container(), card("unjudged", UNJUDGED):
        _table(page, unjudged, "unjudged", "Every rule could judge.")
    with right, card("silenced", "● Silenced, and by what"):
        _table(page, words.silenced(engine), "silenced", "Nothing was silenced.")


def _row(engine: EngineDiagnosis, finding: Finding, life: Said) -> None:
    with st.container(border=True, key=f"card-{finding.id}-{finding.severity.name}"):
        said, opens = st.columns([6, 1], vertical_alignment="center")
        parts = [finding.rule, when_of(finding, engine.scope.end_ts), life.words]
        meta = "  ·  ".join(part for part in parts if part)
        said.markdown(
            f"{badge(finding.severity)}  :gray[:small[{in_markdown(meta, SENTENCE)}]]  \n"
            f"**{in_markdown(finding.sentence, SENTENCE)}**"
        )
        shared = with_stored_shares(finding, life.state)
        if shared.shares:
            said.caption(f"shares: {in_markdown(told_shares(shared), SENTENCE)}")
        if opens.button("Open", key=f"open-{finding.id}", width="stretch"):
            links.show("findings", finding=finding.id)


def _earlier(page: Page, engine: EngineDiagnosis, lives: Lives) -> None:
    """Draws what the log remembers of findings that lie outside this window."""
    here = {finding.id for finding in engine.findings}
    rest = [state for state in stored_states(page, lives) if state.finding not in here]
    if not rest:
        return
    with st.expander(f"{plural(len(rest), 'finding')} stored earlier, outside this window"):
        for state in rest:
            said = in_markdown(state.sentence or state.rule, SENTENCE)
            path = links.path(page, "findings", finding=state.finding)
            life = lives.of(state).words
            about = f"  :gray[:small[{in_markdown(life, SENTENCE)}]]" if life else ""
            name = f"[{in_markdown(state.finding)}]({path})"
            st.markdown(f"{badge(state.severity)} {name} {said}{about}")


def _table(page: Page, shown: Table, key: str, nothing: str) -> None:
    if shown.rows:
        document.table(shown, key=key, link=partial(rule_page.link, page))
    else:
        st.caption(nothing)
