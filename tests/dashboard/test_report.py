"""The report as one file: what stands in it, what it may never hold, how it opens and prints."""

from __future__ import annotations

import html
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dashboard.report.page import POLICY, to_html
from dashboard.report.pictures import MAX_WINDOWS
from dashboard.report.svg import embedded
from dashboard.report.writing import _with_cut, html_report, markdown_report
from diagnose.diagnosis import diagnose
from diagnose.document import (
    Document,
    Figure,
    Heading,
    Paragraph,
    Statement,
    Table,
    code,
    strong,
)
from diagnose.reading import NS, Scope
from stepscope import build_parser, main
from telemetry.store import open_log
from telemetry.store.posting import post_findings
from tests.dashboard.browsing import needs_chromium
from tests.dashboard.logs import storm, write_log
from tests.telemetry.posts import change, saying

HOSTILE = "\"'><script>alert(1)</script><img src=//evil.example/x onerror=alert(1)>\x1b[31m\u202e"


class Reading(HTMLParser):
    """The elements of a page, its words, and every attribute that names an address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.append(name)
            if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                self.addresses.append(value or "")
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def said(self) -> str:
        return " ".join(" ".join(self.words).split())


def report_of(log: Path) -> str:
    with open_log(log) as opened:
        return html_report(opened, diagnose(opened))


@pytest.fixture(scope="module")
def storm_page(storm_log: Path) -> str:
    return report_of(storm_log)


@pytest.fixture(scope="module")
def hostile_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = storm().builder()
    builder.rows["engines"][0] |= {"model": HOSTILE, "version": HOSTILE}
    for row in builder.rows["request_arrivals"]:
        row["request_id"] = HOSTILE
    return write_log(tmp_path_factory.mktemp("hostile"), builder)


LOGS = ["storm_log", "calm_log", "interrupted_log", "empty_log", "scraped_log", "hostile_log"]


@pytest.fixture(scope="module", params=LOGS)
def any_page(request: pytest.FixtureRequest) -> str:
    return report_of(request.getfixturevalue(request.param))


# -------------------------------------------------------------------------------- every kind of log


def test_a_report_names_no_address(any_page: str) -> None:
    page = Reading(any_page)
    assert page.addresses == []
    assert not re.search(r"(?:https?:)?//[a-z]", any_page.replace("//evil.example", ""))
    assert "url(" not in re.sub(r"url\(#[^)]+\)", "", any_page)
    assert "@import" not in any_page


def test_a_report_runs_nothing(any_page: str) -> None:
    page = Reading(any_page)
    forbidden = {"script", "iframe", "object", "embed", "img", "link", "form", "foreignobject"}
    assert not set(page.tags) & forbidden
    assert not [name for name in page.attributes if name.startswith("on")]
    assert f'content="{POLICY}"' in any_page


def test_a_report_is_whole_html(any_page: str) -> None:
    page = Reading(any_page)
    assert page.open == []
    assert page.tags.count("h1") == 1
    assert page.tags.count("title") == 1


def test_ids_of_two_charts_never_meet(any_page: str) -> None:
    ids = re.findall(r' id="([^"]+)"', any_page)
    assert len(ids) == len(set(ids))


def test_no_control_character_is_left(any_page: str) -> None:
    assert "\x1b" not in any_page
    assert "\u202e" not in any_page


# ------------------------------------------------------------------------------------- one finding


def test_a_finding_has_its_charts_in_both_themes_with_their_numbers(storm_page: str) -> None:
    assert storm_page.count("<figure") == 2
    assert storm_page.count('<div class="light"><svg') == 2
    assert storm_page.count('<div class="dark"><svg') == 2
    assert storm_page.count("; its numbers follow as a table") == 2
    assert "The same in numbers, a row for each" in storm_page


def test_the_page_says_what_the_markdown_says(storm_log: Path, storm_page: str) -> None:
    with open_log(storm_log) as log:
        found = diagnose(log)
        markdown = markdown_report(log, found)
    said = Reading(storm_page).said()
    for heading in re.findall(r"^#+ (.+)$", markdown, re.MULTILINE):
        assert heading in said
    assert found.findings[0].sentence in said
    for item in found.findings[0].evidence:
        assert item.name in said


def test_the_numbers_of_the_chart_are_those_of_the_account(
    storm_log: Path, storm_page: str
) -> None:
    with open_log(storm_log) as log:
        account = diagnose(log).engines[0].accounting
    table = re.search(r'<table[^>]*aria-label="The same in numbers, a row.*?</table>', storm_page)
    assert table is not None
    rows = re.findall(r"<tr>(.*?)</tr>", table[0])[1:]
    preempted = [re.findall(r"<td[^>]*>(.*?)</td>", row)[6] for row in rows]
    assert sum(int(cell.replace(",", "")) for cell in preempted) == account.num_rows


def test_text_from_outside_is_shown_as_it_is(hostile_log: Path) -> None:
    page = report_of(hostile_log)
    assert "<script>alert" in Reading(page).said()
    assert "&lt;script&gt;" in page


def test_a_calm_report_is_healthy_in_words_shape_and_colour(calm_log: Path) -> None:
    page = report_of(calm_log)
    assert '<span class="badge well">✓ HEALTHY</span>' in page
    assert '<p class="lead well">Nobody waited for the scheduler.' in page


def test_pieces_are_escaped_in_every_block() -> None:
    blocks = (
        Heading(1, HOSTILE),
        Paragraph((HOSTILE, strong(HOSTILE), code(HOSTILE))),
        Table(HOSTILE, (HOSTILE,), ((HOSTILE,),)),
        Statement(HOSTILE, HOSTILE),
    )
    page = Reading(to_html(Document(HOSTILE, blocks)))
    assert "script" not in page.tags
    assert "img" not in page.tags


def test_a_chart_keeps_no_namespace_and_gets_ids_of_its_own() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" viewBox="0 0 900 50">'
    inside = '<clipPath id="clip0"/><g clip-path="url(#clip0)" aria-label="x">'
    inside += '<path d="M1.23456,2"/>11:55:18.100</g></svg>'
    assert embedded(svg + inside, prefix="a", width=600) == (
        '<svg viewBox="0 0 600 50" aria-hidden="true">'
        '<clipPath id="aclip0"/><g clip-path="url(#aclip0)">'
        '<path d="M1.23,2"/>11:55:18.100</g></svg>'
    )


def test_a_report_of_many_windows_says_how_many_are_drawn() -> None:
    figures = tuple(Figure(Scope(1, 0, 10 + number)) for number in range(MAX_WINDOWS + 2))
    cut = _with_cut(Document("t", figures))
    assert cut.blocks[-1] == Paragraph(
        f"Charts are drawn of the first {MAX_WINDOWS} of 10 windows."
    )
    assert _with_cut(Document("t", figures[:3])).blocks == figures[:3]


# ----------------------------------------------------------------------------------- the command


def test_the_command_writes_one_file(
    storm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.html"
    assert main(["report", "--log", str(storm_log), "--output", str(path)]) == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    assert "The KV pool holds 9" in capsys.readouterr().err
    assert path.read_text().startswith("<!doctype html>")


def test_markdown_goes_to_standard_output(
    storm_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--log", str(storm_log), "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# KV preemption pressure on tiny-llama")


def test_too_little_data_is_said_by_the_exit_code(empty_log: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert main(["report", "--log", str(empty_log), "--output", str(path)]) == 3
    assert "Nothing recorded yet." in path.read_text()


def test_an_unknown_finding_names_those_that_there_are(
    storm_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--log", str(storm_log), "--finding", "nope"]) == 2
    assert re.search(r"no finding 'nope' .*there are kvp-", capsys.readouterr().err)


# ------------------------------------------------------------------- what is stored of the finding


@pytest.fixture
def silenced_log(tmp_path: Path) -> Path:
    """A storm, whose finding was stored, and silenced for an hour."""
    log = write_log(tmp_path / "silenced", storm(num_requests=30).builder())
    with open_log(log) as opened:
        (finding,) = diagnose(opened, effort="none").findings
    place = {"engine": finding.engine, "rule": finding.rule}
    stored = {"finding": finding.id, "opened_ts": finding.span.opened_ts}
    until_ts = time.time_ns() + 3600 * NS
    quiet = saying("silenced", until_ts=until_ts, author="<b>lee", note="load | test", **place)
    post_findings(log, [change(**place, **stored), quiet])
    return log


def test_both_forms_tell_the_life_of_a_finding_and_mark_what_is_silenced(
    silenced_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Reading(report_of(silenced_log)).said()
    assert main(["report", "--log", str(silenced_log), "--markdown"]) == 0
    markdown = capsys.readouterr().out
    for text in (page, html.unescape(markdown).replace("\\", "")):
        assert "Its life, as stored" in text
        assert "First opened" in text
        assert re.search(r"silenced by <b>lee until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", text)
        assert "by <b>lee: load | test" in text


def test_diagnose_and_report_agree_on_the_markdown(
    silenced_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "--log", str(silenced_log), "--markdown"]) == 0
    told = capsys.readouterr().out
    assert main(["report", "--log", str(silenced_log), "--markdown"]) == 0
    assert capsys.readouterr().out == told


# -------------------------------------------------------------------------------------- the what-if


@pytest.fixture(scope="module")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storm of few requests: it is replayed many times."""
    return write_log(tmp_path_factory.mktemp("small"), storm(num_requests=30).builder())


def report(log: Path, *words: str) -> int:
    return main(["report", "--log", str(log), "--markdown", *words])


def test_a_what_if_in_the_report_is_the_one_that_whatif_tells(
    small_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--set", "max_num_seqs=9,watermark=0.05", "--clients", "open"]
    assert main(["whatif", "--log", str(small_log), "--json", *asked]) == 0
    (told,) = json.loads(capsys.readouterr().out)["predictions"]
    path = tmp_path / "report.html"
    assert main(["report", "--log", str(small_log), *asked, "--output", str(path)]) == 0
    page = Reading(path.read_text()).said()
    assert "What a change would do" in page
    assert told["headline"] in page
    assert "; requests arrive when they did." in page
    assert "--max-num-seqs 9 --watermark 0.05" in page


def test_a_what_if_goes_with_the_report_of_one_finding(
    small_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_log(small_log) as log:
        (finding,) = diagnose(log, effort="none").findings
    assert report(small_log, "--finding", finding.id, "--set", "max-num-seqs=9") == 0
    assert "## What a change would do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "swap_space=4"), "cannot be changed: choose max_num_seqs"),
        (("--set", "max_num_seqs"), "has no value: write max_num_seqs=VALUE"),
        (("--set", "watermark=2"), "it is a share of the pool, from 0 to below 1"),
        (("--set", "max_num_seqs=6", "--clients", "shy"), "it takes open, closed or closed:N"),
        (("--clients", "open"), "give --set NAME=VALUE"),
    ],
)
def test_a_what_if_that_cannot_be_is_a_usage_error(
    small_log: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert report(small_log, *words) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_scrapes_alone_cannot_be_replayed_and_nothing_is_written(
    scraped_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.html"
    asked = ["--log", str(scraped_log), "--set", "max_num_seqs=9"]
    assert main(["report", *asked, "--output", str(path)]) == 3
    told = capsys.readouterr().err
    assert main(["whatif", *asked]) == 3
    assert capsys.readouterr().err == told.replace("report:", "whatif:")
    assert not path.exists()


def test_an_empty_log_has_nothing_to_replay(
    empty_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(empty_log, "--set", "max_num_seqs=9") == 2
    assert "the log is empty: there is nothing to replay" in capsys.readouterr().err


def test_every_command_of_the_docs_can_be_typed() -> None:
    page = Path(__file__).parents[2] / "docs" / "report.md"
    lines = re.findall(r"^stepscope report.*$", page.read_text(), re.MULTILINE)
    assert any("--set" in line for line in lines)
    for line in lines:
        words = line.partition("#")[0].replace("HEX", "0" * 16).split()[1:]
        assert build_parser().parse_args(words).command == "report"


# ------------------------------------------------------------------------------ in a real browser


@pytest.mark.browser
@needs_chromium
@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_it_opens_from_a_disk_without_a_complaint(
    browser: Any, request: pytest.FixtureRequest, tmp_path: Path, name: str, theme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_of(request.getfixturevalue(name)))
    page = browser.new_page(color_scheme=theme)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.on("request", lambda asked: told.append(asked.url) if asked.url != path.as_uri() else None)
    page.goto(path.as_uri())
    assert told == []
    shown = page.locator("figure svg:visible").count()
    assert shown == page.locator("figure").count()
    page.close()


@pytest.mark.browser
@needs_chromium
def test_it_prints_light_in_numbered_pages(browser: Any, storm_page: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(storm_page)
    page = browser.new_page(color_scheme="dark")
    page.goto(path.as_uri())
    page.emulate_media(media="print")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert page.locator("figure .light:visible").count() == 2
    assert page.locator("figure .dark:visible").count() == 0
    printed = page.pdf(prefer_css_page_size=True, print_background=True)
    num_pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 2 <= num_pages <= 5
    page.close()
