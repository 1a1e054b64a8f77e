"""The page of one rule: what it says of this window, then what it measures and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import streamlit as st

from dashboard import links, states
from dashboard.finding_cards import SENTENCE
from dashboard.session import Page
from dashboard.untrusted import in_markdown
from diagnose.diagnosis import EngineDiagnosis
from diagnose.pages import page_of
from diagnose.rules import RULES

NAME = "rule"
"""The part of the address that names a rule."""
_TITLE = re.compile(r"^#+ (.+)$", re.MULTILINE)


def link(page: Page, rule: str) -> str:
    """Returns a rule's name as a link to its page; the name alone where it has none."""
    if rule not in RULES:
        return in_markdown(rule)
    return f"[`{rule}`]({links.path(page, 'findings', rule=rule)})"


def draw(page: Page, engine: EngineDiagnosis | None, wanted: str) -> None:
    """Draws what a rule says of this window, and its page as in the documentation."""
    if wanted not in RULES:
        states.card(
            "card-no-rule-quiet",
            ":gray[–] No page of this rule",
            f"No rule of ours is called {in_markdown(wanted)}; your own have no page here.",
        )
        return
    head, *sections = page_of(RULES[wanted]).split("\n## ")
    name, _, about = head.partition("\n")
    st.markdown(f"### {name.removeprefix('# ')}")
    with st.container(border=True, key="card-rule-verdict"):
        for line in _verdict(page, engine, wanted):
            st.markdown(line)
    with st.container(border=True, key="card-rule-page"):
        st.markdown(_plain(about.strip()))
        for section in sections:
            title, _, text = section.partition("\n")
            st.markdown(f"**{title}**\n\n{_plain(text.strip())}")


def _plain(text: str) -> str:
    """Returns our own markdown without what only Streamlit reads as a formula or a directive."""
    return _TITLE.sub(r"**\1**", text).replace("$", r"\$").replace(":", r"\:")


def _verdict(page: Page, engine: EngineDiagnosis | None, rule: str) -> list[str]:
    """Returns what a rule says of the window, as lines of markdown."""
    if engine is None:
        return [":gray[– nothing is recorded in this window]"]
    lines = [line for own, line in _said(page, engine) if own == rule]
    return lines or [":gray[– Not in use in this window.]"]


def _said(page: Page, engine: EngineDiagnosis) -> Iterator[tuple[str | None, str]]:
    """Yields a rule and a line of what it says of the window, for all of them."""
    for found in engine.findings:
        path = links.path(page, "findings", finding=found.id)
        yield found.rule, f":orange[▲] **Found:** [{in_markdown(found.sentence, SENTENCE)}]({path})"
    for well in engine.healthy:
        if well.is_used:
            told = f"{in_markdown(well.name)}, {in_markdown(well.number, SENTENCE)}"
            yield well.rule, f":green[✓] **Well in this window:** {told}"
    for silent in engine.suppressed:
        told = f"{in_markdown(silent.by, 80)}: {in_markdown(silent.number, SENTENCE)}"
        yield silent.rule, f"● **Explained by** {told}"
    for unknown in engine.not_measured:
        told = f"{in_markdown(unknown.why, SENTENCE)}{_lacking(unknown.missing)}"
        yield unknown.rule, f":gray[– **Not measured in this window:** {told}]"


def _lacking(missing: tuple[str, ...]) -> str:
    return f": {in_markdown(', '.join(missing), SENTENCE)}" if missing else ""
