"""The incident report: what it says of a storm, of several findings, of a calm log and of none."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from diagnose.diagnosis import Diagnosis, diagnose
from diagnose.finding import Link, Share
from diagnose.incident import write_incident
from diagnose.incident.whole import words_of, write_one
from diagnose.life.said import Said
from diagnose.life.state import Silence
from diagnose.markdown import to_markdown
from diagnose.rules import RULES
from tests.diagnose import scrapes
from tests.diagnose.life.test_table import NOON, state
from tests.diagnose.logs import (
    Arrival,
    MemoryLog,
    config,
    described,
    log_of,
    pressed,
    run,
    storm_arrivals,
)

HOSTILE = "<img src=x onerror=alert(1)>|`**evil**`\x1b[31m\u202e\n# head"


@cache
def storm() -> tuple[MemoryLog, Diagnosis]:
    return diagnosed(run(config(), storm_arrivals()).log())


@cache
def many() -> tuple[MemoryLog, Diagnosis]:
    arrivals = [Arrival(1) for _ in range(28)] + [Arrival(3, num_prompt_tokens=2500, max_tokens=8)]
    return diagnosed(run(config(), arrivals, max_steps=3000).log())


def diagnosed(log: MemoryLog) -> tuple[MemoryLog, Diagnosis]:
    return log, diagnose(log)


def text_of(told: tuple[MemoryLog, Diagnosis]) -> str:
    return to_markdown(write_incident(*told))


def sections(text: str) -> list[str]:
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def test_a_finding_is_told_in_the_order_in_which_it_is_read() -> None:
    assert sections(text_of(storm())) == [
        "What happened",
        "Why we believe it",
        "Who paid",
        "What to do",
        *(["Silenced, and by what"] if storm()[1].engines[0].suppressed else []),
        "Not known",
    ]


def test_the_answer_comes_first() -> None:
    lines = text_of(storm()).splitlines()
    finding = storm()[1].findings[0]
    assert lines[0] == "# KV preemption pressure on tiny-llama, engine 0"
    assert "· **▲ HIGH** · cleared ·" in lines[2]
    assert lines[4].startswith("Read from 1,171 steps (0 dropped) and 84 requests, 2025-11-29")
    assert lines[6] == f"**{finding.sentence}**"


def test_every_evidence_stands_with_its_threshold_and_how_it_is_known() -> None:
    text, finding = text_of(storm()), storm()[1].findings[0]
    for item in finding.evidence:
        assert re.search(rf"^\| {re.escape(item.name)} \|.+\| {item.provenance} \|$", text, re.M)


def test_what_happened_is_in_order_and_ends_with_the_last_answer() -> None:
    text = text_of(storm())
    table = text.split("## What happened")[1].split("##")[0]
    times = re.findall(r"^\| (\d\d:\d\d:\d\d\.\d\d\d)", table, re.MULTILINE)
    assert times == sorted(times)
    assert "first request of this window" in table
    assert "63 of 63 KV blocks free" in table


def test_the_first_failure_is_told_as_arithmetic() -> None:
    log, found = storm()
    without_chain = replace(found.findings[0], chain=())
    text = to_markdown(write_one(log, found, without_chain))
    assert re.search(r"\d+ requests? needed .+ evicted .*\(step \d+\)", text)


def test_every_statement_that_is_shown_gives_an_answer() -> None:
    log = storm()[0]
    statements = re.findall(r"```sql\n(.+?);\n```", text_of(storm()), re.DOTALL)
    assert statements
    assert all(log.query(sql).num_rows for sql in statements)


def test_the_chain_names_its_stages_and_replaces_what_was_only_guessed_from_times() -> None:
    log, found = storm()
    finding = found.findings[0]
    ts = finding.span.opened_ts
    chain = (
        Link(stage="cause", ts=ts - 5, sentence="28 requests arrived"),
        Link(stage="first_failure", ts=ts, sentence="7 evicted"),
        Link(stage="impact", ts=None, sentence="54 of 84 evicted"),
    )
    text = to_markdown(write_one(log, found, replace(finding, chain=chain)))
    assert "**cause:** 28 requests arrived" in text
    assert "| – | **impact:** 54 of 84 evicted |" in text
    assert "opened:" not in text


def test_the_shares_add_up_before_the_reader() -> None:
    log, found = storm()
    shares = (
        Share(kind="burst_of_arrivals", name="burst of arrivals", num=70.5, ratio=0.75),
        Share(kind=None, name="unexplained", num=23.5, ratio=0.25),
    )
    text = to_markdown(write_one(log, found, replace(found.findings[0], shares=shares)))
    assert "| burst of arrivals | 70.5 | 75.0 % |" in text
    assert "| all | 94.0 | 100.0 % |" in text


def test_many_findings_begin_with_a_table_worst_first() -> None:
    text, found = text_of(many()), many()[1].findings
    assert len(found) > 1
    assert text.startswith(f"# {len(found)} findings on tiny-llama, engine 0")
    rules = re.findall(r"^\| \*\*\S+ [A-Z]+\*\* \| `([a-z-]+)`", text, re.MULTILINE)
    assert rules == [finding.rule for finding in found]


def test_each_engine_has_a_part_of_its_own() -> None:
    calm = run(config(num_gpu_blocks=512, max_num_seqs=64), storm_arrivals())
    calm.engine = 2
    second = calm.builder()
    second.rows["engines"][0]["dp_rank"] = 1
    text = text_of(diagnosed(log_of(run(config(), storm_arrivals()).builder(), second)))
    assert text.startswith("# KV preemption pressure on 2 engines")
    engines = [title for title in sections(text) if "engine" in title]
    assert engines == ["tiny-llama, engine 0", "tiny-llama, engine 1"]
    assert "✓ HEALTHY" in text.split("## tiny-llama, engine 1")[1]


def test_a_calm_log_shows_what_was_checked() -> None:
    text = text_of(
        diagnosed(run(config(num_gpu_blocks=512, max_num_seqs=64), storm_arrivals()).log())
    )
    assert text.startswith("# No scheduler fault on tiny-llama, engine 0")
    assert re.search(r"\| waiting requests \| in 0 of \d+ steps", text)
    assert "| preemptions | 0 |" in text


def test_an_empty_log_says_that_nothing_is_recorded() -> None:
    text = text_of(diagnosed(log_of()))
    assert text.startswith("# Not enough data\n\n**Nothing recorded yet.**")


def test_too_little_is_not_called_healthy() -> None:
    text = text_of(diagnosed(log_of(described())))
    assert text.startswith("# Not enough data on")
    assert "What was checked" not in text


def test_scrapes_say_what_they_cannot_know() -> None:
    text = text_of(diagnosed(log_of(scrapes.storm())))
    assert "84 preemptions counted, none attributed: no step record" in text
    assert re.search(r"\d+ rules not measured, and what each lacks", text)
    assert "Who paid" not in text


def test_names_from_outside_do_nothing() -> None:
    log = pressed(num_evicted=20)
    log.rows["engines"][0] |= {"model": HOSTILE}
    for row in log.rows["request_arrivals"]:
        row["request_id"] = HOSTILE
    text = text_of(diagnosed(log_of(log)))
    shown = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    html = shown.render(text)
    assert "<img" not in html.replace("&lt;img", "")
    assert "<strong>evil" not in html
    assert "\x1b" not in text
    assert "\u202e" not in text


# ----------------------------------------------------------------------------- what is stored of it


SILENCE = Silence(
    engine=None, rule=None, since_ts=NOON, until_ts=NOON + 1, author="lee", note="load test"
)


def test_the_life_of_a_finding_has_a_section_of_its_own() -> None:
    log, found = storm()
    known = state(acknowledged_ts=NOON, acknowledged_by="dana", acknowledged_note="new tenant")
    said = {found.findings[0].id: Said(state=known, silence=SILENCE)}
    text = to_markdown(write_incident(log, found, said=said))
    life = text.split("## Its life, as stored")[1].split("<details>")[0]
    assert "| Acknowledged | 2025-11-30 12:00:00 UTC by dana: new tenant |" in life
    assert "| Silenced | **until 2025-11-30 12:00:00 UTC** by lee: load test |" in life
    assert "· **acknowledged by dana · silenced by lee until" in text.splitlines()[2]


def test_what_is_silenced_comes_last_and_is_marked() -> None:
    log, found = many()
    worst = found.findings[0]
    text = to_markdown(write_incident(log, found, said={worst.id: Said(silence=SILENCE)}))
    assert text.startswith(f"# {len(found.findings)} findings on tiny-llama, engine 0, 1 silenced")
    rows = re.findall(r"^\| \*\*\S+ [A-Z]+\*\* \| `([a-z-]+)`.*$", text, re.MULTILINE)
    assert rows == [*(each.rule for each in found.findings[1:]), worst.rule]
    (row,) = re.findall(rf"^\| \*\*.+`{worst.rule}`.+$", text, re.MULTILINE)
    assert row.endswith("| **silenced by lee until 2025-11-30 12:00:00 UTC** |")
    headings = [title for title in sections(text) if title[0] in "◆▲■●"]
    assert [title.endswith(" · silenced") for title in headings] == [
        *(False for _ in found.findings[1:]),
        True,
    ]
    assert all(item.name in text for item in worst.evidence)


def test_what_nobody_followed_is_not_known_and_has_no_section() -> None:
    log, found = storm()
    text = to_markdown(write_incident(log, found, said={}))
    assert "Its life" not in text
    unknown = text.split("## Not known")[1]
    assert "Not stored: the life of **kv-preemption-pressure**" in unknown


def test_stored_shares_say_of_how_many_and_until_when() -> None:
    log, found = storm()
    shares = (Share(kind=None, name="unexplained", num=55.0, ratio=1.0),)
    stored = replace(found.findings[0], shares=shares, shared_ts=NOON)
    text = to_markdown(write_one(log, found, stored))
    assert "add up to the 55 that there were until 2025-11-30 12:00:00 UTC:" in text
    assert "add up to all of it" not in text


def test_a_rule_is_named_in_words() -> None:
    names = {rule: words_of(rule) for rule in RULES}
    assert names["kv-preemption-pressure"] == "KV preemption pressure"
    assert names["lora-slot-contention"] == "LoRA slot contention"
    assert not any("-" in name for name in names.values())
