"""The page of a rule: what it says of the window, and what the documentation says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dashboard import rule_page
from diagnose.diagnosis import EngineDiagnosis, diagnose
from diagnose.rule import PAGE_SECTIONS
from diagnose.rules import RULES
from telemetry.store import open_log
from tests.dashboard.browsing import Visit, needs_chromium, turn_to
from tests.dashboard.serving import dashboard
from tests.dashboard.test_findings_page import findings, one, tables
from tests.dashboard.test_views import Show, overview, run, said, seen


def engine_of(log: Path) -> EngineDiagnosis:
    with open_log(log) as opened:
        return diagnose(opened).engines[0]


def test_a_rule_s_page_is_that_of_the_documentation(storm_log: Path, show: Show) -> None:
    show(storm_log)
    text = said(run(findings, rule="kv-preemption-thrash"))
    assert "### kv-preemption-thrash" in text
    assert all(f"**{heading}**" in text for heading in (*PAGE_SECTIONS, "Thresholds"))


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_page(rule: str, calm_log: Path, show: Show) -> None:
    show(calm_log)
    assert f"### {rule}" in said(run(findings, rule=rule))


def test_a_rule_says_how_it_judged_the_window(storm_log: Path, show: Show) -> None:
    show(storm_log)
    engine = engine_of(storm_log)
    told = {
        engine.findings[0].rule: "**Found:** [",
        "kv-preemption-thrash": "**Well in this window:** thrash",
        engine.not_measured[0].rule: "**Not measured in this window:**",
        "lora-slot-contention": "Not in use in this window.",
        next(each.rule for each in engine.suppressed if each.rule): "**Explained by**",
    }
    for rule, words in told.items():
        assert words in said(run(findings, rule=rule))


def test_what_was_found_leads_to_the_finding(storm_log: Path, show: Show) -> None:
    show(storm_log)
    finding = engine_of(storm_log).findings[0]
    text = said(run(findings, rule=finding.rule))
    assert f"](./findings?finding={finding.id}&" in text


@pytest.mark.parametrize("wanted", ["no-such-rule", "<script>", "[a](b)", ""])
def test_a_rule_that_is_none_is_said_to_be_none(wanted: str, storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(findings, rule=wanted)
    assert "No page of this rule" in said(test)


def test_the_way_back_leaves_no_rule_in_the_address(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(findings, rule="kv-preemption-thrash")
    test.button(key="all-findings").click().run()
    assert "rule" not in test.query_params
    assert "Looked at and well" in said(test)


def test_a_finding_leads_to_its_rule(storm_log: Path) -> None:
    assert "[What the rule measures](./findings?rule=kv-preemption-pressure&" in said(
        one(storm_log)
    )


def test_the_list_names_rules_with_their_pages(storm_log: Path, show: Show) -> None:
    show(storm_log)
    shown = tables(run(findings))
    for rule in ("kv-preemption-thrash", "queueing-with-kv-full", "frontend-cpu-bound"):
        assert f"[`{rule}`](./findings?rule={rule}&" in shown
    assert "a note" in shown
    assert "[a note]" not in shown


def test_the_checks_lead_on(storm_log: Path) -> None:
    (strip,) = [
        each for each in seen(overview, storm_log).get("html") if "checks" in str(each.proto)
    ]
    written = strip.proto.body
    finding = engine_of(storm_log).findings[0]
    assert written.count("<a ") == 11
    assert written.count(f'href="./findings?finding={finding.id}&amp;') == 3
    assert 'href="./findings?rule=kv-preemption-thrash&amp;' in written
    assert 'href="./recorder?' in written


@pytest.mark.browser
@needs_chromium
def test_a_check_leads_to_its_rule_and_a_found_one_to_its_finding(
    browser: Any, storm_log: Path
) -> None:
    with dashboard(storm_log) as served:
        visit = Visit(browser, served, "light")
        visit.page.get_by_role("link", name="Thrash").click()
        visit.page.get_by_role("heading", name="kv-preemption-thrash").wait_for()
        visit.page.get_by_text("Well in this window:").wait_for()
        turn_to(visit.page, "Overview")
        visit.page.get_by_role("link", name="Queue head short of blocks").click()
        visit.page.get_by_text("Why we believe it").wait_for()
        visit.page.close()


def test_what_only_streamlit_reads_is_no_markup() -> None:
    assert rule_page._plain("# A\n$x$ :red[b]") == "**A**\n\\$x\\$ \\:red[b]"
