"""The verdict: one sentence, what it cost, what users felt, and the twelve checks under it."""

from __future__ import annotations

import time
from html import escape

import streamlit as st

from dashboard import checks, colours, header, links, whatif_data
from dashboard.checks import Check
from dashboard.colours import Theme
from dashboard.dialogs import dialog
from dashboard.queries import panels
from dashboard.session import Page
from dashboard.style import MARKDOWN_COLOURS, SEVERITY_WORDS
from dashboard.untrusted import in_html, in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.finding import NO_FAULT, Action, Finding
from diagnose.life.said import read_said
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.text.finding_text import when_of
from diagnose.text.metric_report import calm_numbers
from diagnose.words import NOT_MEASURED, plural

SENTENCE = 300
"""Characters of a sentence that are shown."""


def band(page: Page, engine: EngineDiagnosis) -> None:
    """Draws the verdict of one engine, and the next findings as single lines under it."""
    if not engine.findings:
        _calm(engine)
        return
    told = read_said(page.log, engine.findings[:3], time.time_ns())
    worst = engine.findings[0]
    with st.container(border=True, key=f"verdict-{worst.severity.name}"):
        said, actions = st.columns([5, 1.15], vertical_alignment="center", gap="large")
        with said:
            _say(engine, worst)
            for line in told[worst.id].lines:
                st.markdown(f":gray[:small[● {in_markdown(line, SENTENCE)}]]")
        with actions:
            _buttons(page, engine, worst)
    for finding in engine.findings[1:3]:
        path = links.path(page, "findings", finding=finding.id)
        sentence = in_markdown(finding.sentence, SENTENCE)
        notes = "".join(f"  :gray[:small[● {in_markdown(n, 120)}]]" for n in told[finding.id].lines)
        st.markdown(f"{_badge(finding)} [{in_markdown(finding.rule)}]({path}) {sentence}{notes}")


def _say(engine: EngineDiagnosis, finding: Finding) -> None:
    confidence = f"confidence {finding.confidence.level}: {finding.confidence.why}"
    meta = f"{finding.rule}  ·  {when_of(finding, engine.scope.end_ts)}  ·  {confidence}"
    st.markdown(f"{_badge(finding)}  :gray[:small[{in_markdown(meta, SENTENCE)}]]")
    st.markdown(f"### {in_markdown(engine.verdict.sentence, SENTENCE)}")
    cost = _sentences(finding.impact.cost)
    if cost:
        st.markdown(cost)
    users = _sentences(finding.impact.users)
    if users:
        st.markdown(f":gray[What users felt: {users}]")


def _sentences(lines: tuple[str, ...]) -> str:
    told = [in_markdown(line[:1].upper() + line[1:], SENTENCE) for line in lines]
    return " ".join(f"{line}." for line in told)


def _badge(finding: Finding) -> str:
    shape, _ = colours.SEVERITIES[finding.severity]
    word = SEVERITY_WORDS[finding.severity]
    return f":{MARKDOWN_COLOURS[finding.severity]}[**{shape} {word}**]"


def _buttons(page: Page, engine: EngineDiagnosis, finding: Finding) -> None:
    number = engine.accounting.num_rows
    if number:
        label = f"Why: {number:,} preemptions explained"
        if st.button(label, type="primary", width="stretch", key="why"):
            st.switch_page(st.session_state["pages"]["preemptions"])
    if finding.actions and st.button("What would fix it", width="stretch", key="fix"):
        _show_actions(finding)
    if st.button("Report", width="stretch", key="report"):
        links.show("findings", finding=finding.id)


@dialog("What would fix it")
def _show_actions(finding: Finding) -> None:
    st.markdown(f"**{in_markdown(finding.cause.sentence, SENTENCE)}**")
    for number, action in enumerate(finding.actions):
        st.markdown(_action(action))
        wanted = whatif_data.address_of_action(action)
        if wanted is not None and st.button("Replay it", key=f"whatif-{number}", type="tertiary"):
            links.show("whatif", set=wanted)
    st.caption(in_markdown(finding.prediction or "No effect is predicted.", SENTENCE))


def _action(action: Action) -> str:
    lines = []
    if action.flag is not None:
        change = f"{action.flag} {action.old} → {action.new}"
        lines.append(f"**{in_markdown(change, 120)}** ({action.applies})")
    lines += [
        in_markdown(action.what, SENTENCE),
        f":gray[price: {in_markdown(action.trade_off, SENTENCE)}]",
        f":gray[verify: {in_markdown(action.verify, SENTENCE)}]",
        f":gray[revert: {in_markdown(action.revert, SENTENCE)}]",
    ]
    return "  \n".join(lines)


def _calm(engine: EngineDiagnosis) -> None:
    is_healthy = engine.verdict.rule == NO_FAULT
    with st.container(border=True, key=f"verdict-{'healthy' if is_healthy else 'quiet'}"):
        badge = ":green[**✓ HEALTHY**]" if is_healthy else ":gray[**– NOT MEASURED**]"
        st.markdown(f"{badge}  :gray[:small[{in_markdown(engine.verdict.rule)}]]")
        st.markdown(f"### {in_markdown(engine.verdict.sentence, SENTENCE)}")
        if engine.metrics is not None:
            _calm_scrapes(engine, engine.metrics)
            return
        steps, account = engine.steps, engine.accounting
        free = "–" if steps.min_free_blocks is None else f"{steps.min_free_blocks:,}"
        pool = engine.settings.num_usable_blocks
        of = "" if pool is None else f" of {pool:,}"
        st.markdown(
            f":gray[{steps.num_steps:,} steps, {account.num_requests:,} requests, "
            f"{account.num_rows:,} preemptions; never under {free}{of} blocks free.]"
        )


def _calm_scrapes(engine: EngineDiagnosis, facts: MetricFacts) -> None:
    numbers = "; ".join(f"{name} {told}" for name, told in calm_numbers(facts, engine.settings))
    st.markdown(f":gray[{in_markdown(numbers, SENTENCE)}]")


def beside(page: Page, engine: EngineDiagnosis) -> None:
    """Draws what explains a verdict on scrapes, and how much they cannot tell."""
    missing = len({said.rule for said in engine.not_measured})
    notes = [f"{said.by}: {said.number}" for said in engine.suppressed]
    for note in notes:
        st.caption(in_markdown(note, SENTENCE))
    if missing:
        which = f"[which, and what each lacks]({links.path(page, 'findings')})"
        st.caption(f"{NOT_MEASURED} {plural(missing, 'rule')} cannot judge from this: {which}")


# -------------------------------------------------------------------------------------- the strip


def strip(page: Page, engine: EngineDiagnosis) -> None:
    """Draws the twelve checks."""
    facts = page.row(panels.facts(page.scope))
    cells = "".join(_cell(page, check) for check in checks.all_checks(engine, facts))
    st.html(f'<div class="checks">{cells}</div>')


def _cell(page: Page, check: Check) -> str:
    colour = _colour(check, page.theme)
    shape = checks.shape_of(check)
    said = (
        f'<span style="color:{colour}">{shape}</span> <b>{in_html(check.name)}</b>'
        f"<br>{in_html(check.number)}"
    )
    way = _way(page, check)
    if way is None:
        return f"<div>{said}</div>"
    return f'<a href="{escape(way)}" target="_self">{said}</a>'


def _way(page: Page, check: Check) -> str | None:
    """Returns the address that tells more: what was found, else the page of the rule that looks."""
    if check.name == checks.RECORDER:
        return links.path(page, "recorder")
    if check.finding is not None:
        return links.path(page, "findings", finding=check.finding)
    return None if check.rule is None else links.path(page, "findings", rule=check.rule)


def _colour(check: Check, theme: Theme) -> str:
    if check.severity is not None:
        return colours.SEVERITIES[check.severity][1].of(theme)
    sign = colours.HEALTHY if check.outcome == "healthy" else colours.NOT_MEASURED
    return sign[1].of(theme)


__all__ = ["band", "header", "strip"]
