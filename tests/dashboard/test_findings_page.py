"""The page of findings: the list, one of them, what people said of it, and what is not known."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.finding_words import headline
from dashboard.source import ROOT_VARIABLE
from diagnose.diagnosis import diagnose
from diagnose.finding import Finding
from diagnose.life import read_states
from diagnose.life.said import with_stored_shares
from diagnose.reading import NS
from telemetry.store import open_log
from tests.dashboard import logs
from tests.dashboard.test_views import charts, overview, run, said
from tests.telemetry.log_builder import MS, START, LogBuilder

Show = Callable[[Path], None]
SHARES = [
    {"kind": "burst_of_arrivals", "name": "burst of <b>arrivals", "num": 78.0, "ratio": 0.78},
    {"kind": "no such kind", "name": "unexplained", "num": 22.0, "ratio": 0.22},
]
HOSTILE = "<b>evil</b> [x](http://evil.example) :red[boo]"


def findings() -> None:
    from dashboard import app

    app.show_findings()


def finding_of(log: Path) -> Finding:
    with open_log(log) as opened:
        return diagnose(opened).findings[0]


def told(builder: LogBuilder, about: Finding, event: str, **more: object) -> None:
    own = {"engine": about.engine, "finding": about.id, "rule": about.rule, "event": event}
    builder._add("findings", own | {"ts": START + 60_000 * MS} | more)


@pytest.fixture(scope="module")
def followed_log(tmp_path_factory: pytest.TempPathFactory, storm_log: Path) -> Path:
    """The storm, whose finding was stored, opened twice, and acknowledged by somebody."""
    builder, finding = logs.storm().builder(), finding_of(storm_log)
    opened = {"opened_ts": finding.span.opened_ts, "severity": "high", "rule_version": 1}
    body = json.dumps({"sentence": finding.sentence, "shares": SHARES})
    told(builder, finding, "opened", status="open", num_openings=2, body=body, **opened)
    said_by = {"author": HOSTILE, "note": "known: " + HOSTILE, "ts": START + 70_000 * MS}
    told(builder, finding, "acknowledged", **said_by)
    until_ts = time.time_ns() + 3600 * NS
    quiet = {"author": "lee", "note": "load test", "until_ts": until_ts, "finding": None}
    told(builder, finding, "silenced", **quiet)
    gone = {"finding": "old-1", "rule": "worker-hang", "status": "cleared", "ts": START + MS}
    told(builder, finding, "opened", **(opened | gone | {"body": body, "num_openings": 1}))
    return logs.write_log(tmp_path_factory.mktemp("followed"), builder)


@cache
def one(log: Path) -> AppTest:
    """One run of the page of a log's worst finding, for tests that only look."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(log))
        return run(findings, finding=finding_of(log).id)


def tables(test: AppTest) -> str:
    """All that stands in the page's tables, without the escapes of markdown."""
    return written(test).replace("\\", "")


def written(test: AppTest) -> str:
    return "\n".join(str(cell) for table in test.table for cell in table.value.to_numpy().flat)


# --------------------------------------------------------------------------------------- the list


def test_the_list_says_how_much_was_found_and_what_is_well(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(findings)
    first = next(element.value for element in test.markdown if element.value.startswith("###"))
    assert re.match(r"### 1 finding, cleared; \d+ checks are well; \d+ could not be", first)
    assert "Cleared" in said(test)
    assert "Open" not in said(test).splitlines()


@pytest.mark.parametrize("name", ["storm_log", "calm_log", "interrupted_log", "scraped_log"])
def test_what_could_not_be_judged_names_the_missing_signal(
    request: pytest.FixtureRequest, show: Show, name: str
) -> None:
    log = request.getfixturevalue(name)
    show(log)
    shown = tables(run(findings))
    with open_log(log) as opened:
        engine = diagnose(opened).engines[0]
    for unknown in engine.not_measured:
        assert unknown.rule in shown
        assert all(signal in shown for signal in unknown.missing)


def test_a_calm_log_has_no_finding_and_says_why(calm_log: Path, show: Show) -> None:
    show(calm_log)
    test = run(findings)
    assert "No finding." in said(test)
    assert "Nobody waited for the scheduler." in said(test)


def test_an_empty_log_says_that_nothing_is_recorded(empty_log: Path, show: Show) -> None:
    show(empty_log)
    test = run(findings)
    assert "Nothing recorded yet." in said(test)
    assert not test.table


@pytest.mark.parametrize(
    ("are_open", "sentence"),
    [
        ((True,), "1 finding, open;"),
        ((False, False), "2 findings, all cleared;"),
        ((True, False, False), "3 findings: 1 open, 2 cleared;"),
    ],
)
def test_findings_are_counted_by_how_they_stand(
    storm_log: Path, are_open: tuple[bool, ...], sentence: str
) -> None:
    with open_log(storm_log) as log:
        engine = diagnose(log).engines[0]
    (finding,) = engine.findings
    opened = replace(finding, span=replace(finding.span, cleared_ts=None))
    findings = tuple(opened if is_open else finding for is_open in are_open)
    assert headline(replace(engine, findings=findings)).startswith(sentence)


def test_a_stored_finding_outside_the_window_is_not_lost(followed_log: Path, show: Show) -> None:
    show(followed_log)
    assert "old-1" in said(run(findings))


# ------------------------------------------------------------------------------------ one finding


def test_one_finding_tells_all_that_the_report_tells(storm_log: Path) -> None:
    finding = finding_of(storm_log)
    test = one(storm_log)
    words, shown = said(test), tables(test)
    assert f"### {finding.sentence}" in words
    assert finding.cause.sentence.replace("->", "→") in shown
    assert all(item.name in shown for item in finding.evidence)
    assert all(item.name in words for item in finding.rejected)
    assert all(share.name in shown for share in finding.shares)
    assert all(str(action.flag) in shown for action in finding.actions)


def test_the_charts_show_the_window_of_the_finding(storm_log: Path) -> None:
    (chart,) = charts(one(storm_log))
    assert len(chart["vconcat"]) == 8


def test_scrapes_have_their_own_charts(scraped_log: Path) -> None:
    (chart,) = charts(one(scraped_log))
    assert len(chart["vconcat"]) == 3


def test_every_number_has_its_statement_and_its_answer(storm_log: Path, show: Show) -> None:
    show(storm_log)
    finding = finding_of(storm_log)
    test = run(findings, finding=finding.id)
    test.button(key="sql-why").click().run()
    names = "; ".join(test.selectbox[0].options)
    assert all(item.name in names for item in finding.evidence)
    assert "SELECT" in said(test)
    assert len(test.dataframe) == 1


def test_the_json_is_the_one_of_diagnose(storm_log: Path, show: Show) -> None:
    show(storm_log)
    finding = finding_of(storm_log)
    test = run(findings, finding=finding.id)
    test.button(key="report-json").click().run()
    assert json.loads(test.code[-1].value)["id"] == finding.id


def test_a_request_that_paid_leads_to_its_story(storm_log: Path) -> None:
    finding = finding_of(storm_log)
    shown = tables(one(storm_log))
    assert f"(./requests?request={finding.affected[0].request}&engine=" in shown


def test_who_acknowledged_it_stands_beside_it(followed_log: Path) -> None:
    shown = tables(one(followed_log))
    assert "Acknowledged" in shown
    assert "2 times" in shown


def test_stored_shares_stand_in_its_life(followed_log: Path) -> None:
    assert "burst of <b>arrivals 78 %, unexplained 22 % of 100" in tables(one(followed_log))


def test_a_finding_without_shares_takes_those_that_are_stored_of_it(followed_log: Path) -> None:
    with open_log(followed_log) as opened:
        (state,) = [each for each in read_states(opened) if each.shares and each.is_open]
    replayed = finding_of(followed_log)
    bare = replace(replayed, shares=())
    taken = with_stored_shares(bare, state).shares
    assert [(share.kind, share.num) for share in taken] == [("burst_of_arrivals", 78), (None, 22)]
    assert with_stored_shares(replayed, state) == replayed
    later = replace(state, opened_ts=bare.span.opened_ts + 3600 * NS)
    assert with_stored_shares(bare, later) == bare
    assert with_stored_shares(bare, None) == bare


def test_a_closed_log_says_that_it_was_open_when_the_record_ended(followed_log: Path) -> None:
    assert "open when the record ended" in tables(one(followed_log))


def test_a_silence_of_what_nobody_followed_is_marked(
    tmp_path: Path, storm_log: Path, show: Show
) -> None:
    builder, finding = logs.storm().builder(), finding_of(storm_log)
    quiet = {"author": "lee", "finding": None, "until_ts": time.time_ns() + 3600 * NS}
    told(builder, finding, "silenced", **quiet)
    show(logs.write_log(tmp_path, builder))
    assert "silenced by lee until" in said(run(findings))
    test = run(findings, finding=finding.id)
    assert "silenced by lee until" in said(test)
    assert "No life is stored" in said(test)


@pytest.mark.parametrize("page", [overview, findings])
def test_what_is_silenced_and_known_is_marked(
    followed_log: Path, show: Show, page: Callable[[], None]
) -> None:
    show(followed_log)
    text = said(run(page))
    assert re.search(r"silenced by lee until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", text)
    assert "acknowledged by" in text


def test_what_people_said_is_shown_as_it_is(followed_log: Path) -> None:
    test = one(followed_log)
    raw = written(test)
    assert "[x](http://evil.example)" not in raw
    assert ":red[boo]" not in raw
    assert "[x](http://evil.example)" in tables(test)


def test_an_unknown_finding_names_those_of_the_window(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(findings, finding="<script>")
    assert "No such finding in this window" in said(test)
    assert finding_of(storm_log).id in said(test)


def test_a_finding_outside_the_window_is_told_from_what_is_stored(
    followed_log: Path, show: Show
) -> None:
    show(followed_log)
    test = run(findings, finding="old-1")
    assert "outside this window" in said(test)
    assert test.button(key="its-window")
