"""The page of a rule of one's own, from the same generator as ours."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.pages import page_of
from diagnose.rule import Rule
from diagnose.user_rules.deciding import rule_of
from diagnose.user_rules.definition import UserRule


def own_page(own: UserRule) -> str:
    """Returns the page as Markdown."""
    judged = "step records" if own.judges == "steps" else "scrapes of an engine that has no steps"
    thresholds = [(each.name, each.value, each.source) for each in own.thresholds]
    return page_of(rule_of(own), judged_by=f"Judges {judged}.", thresholds=thresholds)


def any_page(rule: Rule, own: Sequence[UserRule]) -> str:
    """Returns the page of any rule, ours or one's own."""
    mine = next((each for each in own if each.id == rule.id), None)
    return page_of(rule) if mine is None else own_page(mine)
