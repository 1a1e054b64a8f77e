"""Two windows of real schedules side by side, and every form in which that is told."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from diagnose.diff import Diff, Quantity, compare, read_side
from diagnose.diff.command import add_diff, diff_of
from diagnose.diff.json_output import to_document
from diagnose.diff.page import to_page
from diagnose.diff.span import parse_span
from diagnose.diff.text import write_diff
from diagnose.markdown import to_markdown
from diagnose.text.lines import WIDTH
from diagnose.window import Window, choose_window
from tests.diagnose import scrapes
from tests.diagnose.logs import Arrival, MemoryLog, config, described, log_of, run
from tests.telemetry.log_builder import MS, START

SCHEMA = Path(__file__).parents[3] / "docs" / "diff.schema.json"
HOSTILE = "[red]evil\x1b[31m\u202e\n<script>" + "x" * 90


def arrivals(num_prompt_tokens: int = 64) -> list[Arrival]:
    first = [Arrival(1, num_prompt_tokens) for _ in range(28)]
    return first + [Arrival(40 + 8 * i, num_prompt_tokens) for i in range(56)]


@cache
def storm() -> MemoryLog:
    return run(config(), arrivals()).log()


@cache
def calm() -> MemoryLog:
    return run(config(num_gpu_blocks=512, max_num_seqs=64), arrivals()).log()


@cache
def scraped() -> MemoryLog:
    return log_of(scrapes.storm())


@cache
def between(a: MemoryLog, b: MemoryLog) -> Diff:
    return compare(read_side("A", a, choose_window(a)), read_side("B", b, choose_window(b)))


@cache
def fixed() -> Diff:
    return between(storm(), calm())


def quantity(diff: Diff, name: str) -> Quantity:
    return next(each for each in diff.quantities if each.name == name)


# ------------------------------------------------------------------------------------- what differs


def test_a_finding_that_is_gone_says_what_stands_in_its_place() -> None:
    (change,) = [each for each in fixed().findings if each.rule == "kv-preemption-pressure"]
    assert change.fate == "gone"
    assert change.b is None
    assert change.why == "B: 0 for want of blocks"


def test_the_other_way_round_it_is_new() -> None:
    (change,) = [
        each for each in between(calm(), storm()).findings if each.rule == "kv-preemption-pressure"
    ]
    assert change.fate == "new"


def test_a_log_against_itself_differs_in_nothing() -> None:
    diff = between(storm(), storm())
    assert {change.fate for change in diff.findings} == {"same"}
    assert diff.settings == ()
    assert diff.beyond_noise == ()


def test_a_finding_that_scrapes_cannot_judge_is_not_called_gone() -> None:
    oversized = [Arrival(1), Arrival(3, num_prompt_tokens=2500, max_tokens=8)]
    log = run(config(), oversized, max_steps=3000).log()
    fates = {each.rule: each for each in between(log, scraped()).findings}
    change = fates["request-exceeds-kv-capacity"]
    assert change.fate == "unknown"
    assert change.why is not None
    assert "not measured" in change.why


def test_settings_that_differ_are_named_and_no_others() -> None:
    told = {setting.name: (setting.old, setting.new) for setting in fixed().settings}
    assert told == {"KV blocks": (63, 511), "max_num_seqs": (32, 64)}


def test_settings_that_one_side_does_not_tell_are_not_called_different() -> None:
    diff = between(storm(), scraped())
    assert all(s.old is not None and s.new is not None for s in diff.settings)
    assert "max_num_seqs" in {setting.name for setting in diff.settings_of_one_side}


def test_longer_prompts_are_a_difference_of_the_traffic() -> None:
    longer = run(config(num_gpu_blocks=512, max_num_seqs=64), arrivals(128)).log()
    told = quantity(between(calm(), longer), "prompt tokens, p50")
    assert (told.group, told.a, told.b) == ("traffic", 64, 128)
    assert told.outcome == "beyond_noise"


# -------------------------------------------------------------------------------------- the numbers


def test_preemptions_are_those_of_the_account() -> None:
    told = quantity(fixed(), "preemptions per second")
    account = fixed().a.diagnosis.accounting
    assert told.num_a == account.num_rows
    assert told.a == pytest.approx(account.num_rows / fixed().a.seconds)
    assert told.b == 0
    assert told.outcome == "beyond_noise"


def test_the_shares_of_token_work_add_up_on_both_sides() -> None:
    shares = [each for each in fixed().quantities if each.group == "token work"]
    assert sum(each.a or 0 for each in shares) == pytest.approx(1)
    assert sum(each.b or 0 for each in shares) == pytest.approx(1)


def test_waiting_by_reason_adds_up_to_the_queue() -> None:
    reasons = [each for each in fixed().quantities if each.name.startswith("waiting: ")]
    queue = quantity(fixed(), "waiting requests")
    assert sum(each.a or 0 for each in reasons) == pytest.approx(queue.a)


def test_nobody_waiting_for_a_reason_is_a_counted_zero() -> None:
    reasons = [each for each in fixed().quantities if each.name.startswith("waiting: ")]
    assert reasons
    assert {each.b for each in reasons} == {0}


def test_percentiles_are_those_of_the_requests() -> None:
    sql = "SELECT quantile_disc(max_itl_ns, 0.95) AS p FROM requests WHERE is_finished"
    expected = storm().query(sql).to_pylist()[0]["p"]
    assert quantity(fixed(), "longest pause in an answer, p95").a == expected


def test_scrapes_leave_out_what_they_cannot_know() -> None:
    diff = between(storm(), scraped())
    told = quantity(diff, "recomputed, of scheduled tokens")
    assert told.b is None
    assert told.outcome == "not_measured"
    counted = quantity(diff, "preemptions per second")
    assert counted.b == pytest.approx(84 / 70)


def test_too_little_on_one_side_is_said() -> None:
    few = run(config(num_gpu_blocks=512), [Arrival(1) for _ in range(6)]).log()
    told = quantity(between(storm(), few), "time to first token, p95")
    assert (told.num_b, told.outcome) == (6, "too_few")


# ------------------------------------------------------------------------------------- every form


@cache
def hostile() -> Diff:
    builder = run(config(), arrivals()).builder()
    builder.rows["engines"][0] |= {"model": HOSTILE, "kv_connector": HOSTILE, "settings": None}
    return between(log_of(builder), calm())


@pytest.mark.parametrize("diff", [fixed, hostile])
def test_no_line_is_wider_than_a_hundred_columns(diff: Any) -> None:
    text = write_diff(diff()).text()
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_answer_comes_first() -> None:
    lines = write_diff(fixed()).text().splitlines()
    assert lines[0].startswith("A  engine 0 tiny-llama  2025-11-29")
    assert lines[3].startswith("  kv-preemption-pressure is gone in B.")


def test_the_text_says_how_noise_was_judged() -> None:
    text = " ".join(write_diff(fixed()).text().split())
    assert "▲ beyond noise · within noise ? too few samples – not measured" in text
    assert "drawn 2,000 times with replacement" in text


def test_another_traffic_is_a_caution() -> None:
    longer = run(config(num_gpu_blocks=512, max_num_seqs=64), arrivals(128)).log()
    said = to_document(between(storm(), longer))["cautions"]
    assert any("the traffic differs as well (" in each for each in said)


@pytest.mark.parametrize("diff", [fixed, hostile, lambda: between(storm(), scraped())])
def test_the_json_is_as_published(diff: Any) -> None:
    document = json.loads(json.dumps(to_document(diff()), allow_nan=False))
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))


def test_the_markdown_has_every_quantity() -> None:
    text = to_markdown(to_page(fixed()))
    assert text.startswith("# Two windows compared\n\n**kv-preemption-pressure is gone in B.")
    assert all(f"| {each.name} |" in text.replace("**", "") for each in fixed().quantities)


# ------------------------------------------------------------------------------------- the command


def parse(*words: str) -> argparse.Namespace:
    log = argparse.ArgumentParser(add_help=False)
    log.add_argument("--log", type=Path, default=Path("nowhere"))
    parser = argparse.ArgumentParser()
    add_diff(parser.add_subparsers(required=True), [log])
    return parser.parse_args(["diff", *words])


def call(words: Sequence[str], a: MemoryLog | None = None, b: MemoryLog | None = None) -> int:
    return diff_of(a or storm(), b or a or storm(), parse(*words))


def test_two_windows_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--a=..-3s", "--b=-3s.."]) == 0
    assert capsys.readouterr().out.count("engine 0 tiny-llama") == 2


def test_windows_that_overlap_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--a=..-2s", "--b=-4s.."]) == 0
    assert "the windows overlap" in capsys.readouterr().out


def test_an_empty_window_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([], a=log_of(), b=storm()) == 2
    assert "no engine left a row in window A" in capsys.readouterr().err


def test_an_engine_that_is_not_there_names_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["--engine-a", "00000000000000aa"]) == 2
    assert "there are 0000000000000001" in capsys.readouterr().err


def test_nothing_to_compare_has_an_exit_code_of_its_own() -> None:
    assert call([], a=log_of(described()), b=log_of(described())) in (2, 3)


WHOLE = Window(start_ts=START, end_ts=START + 60_000 * MS)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("..", 0, 60),
        ("-20s..-10s", 40, 50),
        ("..-10s", 0, 50),
        ("-20s..", 40, 60),
        ("2025-11-29T11:55:28.848..2025-11-29T11:55:38.848Z", 10, 20),
        ("2025-11-29T12:55:28.848+01:00..", 10, 60),
    ],
)
def test_a_window_is_two_ends(text: str, start: int, end: int) -> None:
    window = parse_span(text, WHOLE)
    seconds = [(ts - START) / (1_000 * MS) for ts in (window.start_ts, window.end_ts)]
    assert seconds == [start, end]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("10m", "write FROM..TO"),
        ("-10s..-20s", "ends before it begins"),
        ("yesterday..", "is no time"),
        ("2020-01-01..2020-01-02", "lies outside the log"),
    ],
)
def test_a_window_that_is_none_says_what_to_write(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        parse_span(text, WHOLE)
