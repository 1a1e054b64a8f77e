from __future__ import annotations

import io
import re
from functools import cache

import pytest

from diagnose.diagnosis import diagnose
from diagnose.report import write_report
from diagnose.text.lines import WIDTH, Report, print_report
from tests.diagnose.logs import (
    Arrival,
    MemoryLog,
    config,
    described,
    log_of,
    preempting_step,
    pressed,
    run,
    steps,
    storm_arrivals,
)

HOSTILE = "[red]evil[/red]\x1b[31m\u202eevil\n<script>" + "x" * 300


@pytest.fixture(scope="module")
def storm() -> str:
    return text_of(run(config(), storm_arrivals()).log())


def text_of(log: MemoryLog) -> str:
    return write_report(diagnose(log)).text()


@cache
def oversized() -> MemoryLog:
    arrivals = [Arrival(1), Arrival(3, num_prompt_tokens=2500, max_tokens=8)]
    return run(config(), arrivals, max_steps=6000).log()


@cache
def slots() -> MemoryLog:
    return run(config(num_gpu_blocks=512, max_num_seqs=4), storm_arrivals()).log()


def hostile() -> MemoryLog:
    log = pressed(num_evicted=20)
    log.rows["engines"][0] |= {"model": HOSTILE, "kv_connector": HOSTILE}
    for row in log.rows["request_arrivals"]:
        row["request_id"] = HOSTILE
    return log_of(log)


def empty() -> MemoryLog:
    return log_of(described())


@pytest.mark.parametrize("log", [oversized, slots, hostile, empty])
def test_no_line_is_wider_than_a_hundred_columns(log: object) -> None:
    assert callable(log)
    assert max(len(line) for line in text_of(log()).splitlines()) <= WIDTH


def test_a_storm_fits_too(storm: str) -> None:
    assert max(len(line) for line in storm.splitlines()) <= WIDTH


def test_the_account_is_one_sum(storm: str) -> None:
    assert "+ 0 priority + 0 cache_reset + 0 unattributed" in storm
    assert "✓ equals the engine's own counter" in storm


def test_the_answer_comes_first(storm: str) -> None:
    lines = storm.splitlines()
    assert lines[0].startswith("engine 0 tiny-llama  2025-11-29 11:55:18.8 to 11:55:25.9 UTC")
    assert lines[2].startswith("▲ HIGH  kv-preemption-pressure")
    assert lines[2].split("pressure")[1].strip().startswith("cleared 11:55:25")
    assert lines[3].strip().startswith("The KV pool holds 9 of these requests to their end;")


def test_values_stand_beside_their_thresholds(storm: str) -> None:
    line = next(line for line in storm.splitlines() if "steps that preempted" in line)
    assert re.search(r"\d\.\d % +5 % +measured$", line)


def test_a_healthy_run_shows_the_numbers_that_were_checked() -> None:
    text = text_of(run(config(num_gpu_blocks=512, max_num_seqs=64), storm_arrivals()).log())
    assert "✓ HEALTHY  no-scheduler-fault" in text
    assert "Nobody waited for the scheduler." in text
    assert re.search(r"waiting requests +0 in \d+ steps", text)
    assert "of 511" in text


def test_text_from_outside_is_harmless() -> None:
    text = text_of(hostile())
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[red]evil[/red]?" in text


def test_a_terminal_shows_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    print_report(write_report(diagnose(hostile())), stream)
    assert "[red]evil[/red]?" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


def test_no_color_gives_the_same_text_as_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report()
    report.add(("▲ HIGH", "high"), "  text")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    print_report(report, stream)
    assert stream.getvalue() == report.text()


def test_ascii_has_no_other_signs() -> None:
    text = write_report(diagnose(log_of(pressed(num_evicted=20)))).text(ascii_only=True)
    assert text.isascii()
    assert "[!] HIGH" in text
    assert "[ok]" in text


def test_ascii_is_no_wider_either() -> None:
    text = write_report(diagnose(slots())).text(ascii_only=True)
    assert max(len(line) for line in text.splitlines()) <= WIDTH


def test_an_empty_log_says_so() -> None:
    memory = log_of()
    text = text_of(memory)
    assert "Nothing recorded yet." in text
    assert "stepscope doctor" in text


def test_several_engines_are_told_apart_by_their_numbers() -> None:
    text = text_of(log_of(steps(described(engine=7), 100), pressed(num_evicted=20)))
    assert "engine 0000000000000001" in text
    assert "engine 0000000000000007" in text
    assert text.index("0000000000000001") < text.index("0000000000000007")


def test_unattributed_preemptions_are_not_hidden() -> None:
    log = pressed(num_evicted=20)
    log.rows["request_events"] = [
        row for row in log.rows["request_events"] if row.get("request") != 95
    ]
    assert "1 unattributed: the engine counted 20, 19 are recorded" in text_of(log_of(log))


def test_suppressed_findings_are_told() -> None:
    text = text_of(log_of(pressed(num_evicted=6, times=3, pause_ns=20_000_000)))
    assert "guard-light-preemption" in text


def test_a_rejected_burst_keeps_its_distance() -> None:
    text = text_of(run(config(), [Arrival(1 + 7 * i) for i in range(60)]).log())
    assert re.search(r"burst of arrivals +\d+ -> \d+ in flight", text)


def test_further_episodes_are_told() -> None:
    log = pressed(num_evicted=20).advance(60_000_000_000)
    steps(log, 100)
    preempting_step(log, [99])
    steps(log, 100)
    assert "1 further episode in this window" in text_of(log_of(log))
