"""Every rule has its page, and `docs/rules/` holds what the rules say."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.pages import page_of
from diagnose.rule import PAGE_SECTIONS, Rule
from diagnose.rules import RULES, find_rule

DOCS = Path(__file__).parents[2] / "docs" / "rules"


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_page_has_every_section_and_text_in_it(rule: Rule) -> None:
    sections = rule.sections()
    assert tuple(sections)[1:] == PAGE_SECTIONS
    assert all(len(text) > 20 for text in sections.values())


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_page_opens_with_the_rules_name(rule: Rule) -> None:
    assert rule.sections()[""].startswith(f"{rule.id}: ")


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_documented_page_is_current(rule: Rule) -> None:
    page = DOCS / f"{rule.id}.md"
    assert page.read_text(encoding="utf-8") == page_of(rule), "run: python -m diagnose.pages"


def test_no_page_is_left_over() -> None:
    assert {page.stem for page in DOCS.glob("*.md")} == set(RULES)


def test_a_file_holds_the_rule_that_it_is_named_after() -> None:
    folder = Path(__file__).parents[2] / "diagnose" / "rules"
    files = {path.stem.replace("_", "-") for path in folder.glob("*.py")} - {"--init--"}
    assert files == set(RULES)


def test_prefixes_of_finding_ids_are_unique() -> None:
    prefixes = [rule.prefix for rule in RULES.values()]
    assert len(prefixes) == len(set(prefixes))


def test_a_rule_is_only_silenced_by_rules_that_exist() -> None:
    assert all(other in RULES for rule in RULES.values() for other in rule.silenced_by)


def test_an_unknown_rule_is_answered_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="kv-preemption-pressure"):
        find_rule("kv-presure")


def test_a_page_without_a_section_is_refused() -> None:
    rule = find_rule("seq-slot-limit")
    broken = Rule(
        id=rule.id, version=1, prefix="x", page=rule.page.replace("Source\n", "Sauce\n"),
        decide=rule.decide,
    )  # fmt: skip
    with pytest.raises(ValueError, match="Sauce"):
        page_of(broken)
