"""`findings`, `ack`, `silence` and `unsilence` as people type them, on a closed log."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from diagnose.life import read_changes, read_silences, read_states
from diagnose.reading import NS
from stepscope import main
from telemetry.store import open_log
from telemetry.store.posting import post_findings
from tests.diagnose.test_json_output import closed
from tests.telemetry.collector.builders import collect, record, ring_for
from tests.telemetry.posts import ENGINE, FINDING, change, saying

SCHEMA = Path(__file__).parents[3] / "docs" / "findings.schema.json"
HEX = f"{ENGINE:016x}"
OTHER = {"finding": "ssl-00000001", "rule": "seq-slot-limit", "severity": "medium"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A closed log with two open findings of one engine and one that has cleared."""
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    ring.close()
    collect(log)
    over = {"finding": "kvp-00000009", "engine": 9, "status": "cleared", "event": "cleared"}
    post_findings(log, [change(), change(**OTHER), change(**over, cleared_ts=time.time_ns())])
    return log


def call(log: Path, command: str, *words: str) -> int:
    return main([command, "--log", str(log), *words])


def states(log: Path) -> dict[str, Any]:
    with open_log(log) as opened:
        return {state.finding: state for state in read_states(opened)}


def listed(log: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert call(log, "findings", "--json", *words) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_open_ones_are_listed_the_worst_first(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(log, "findings") == 0
    text = capsys.readouterr().out
    assert text.index(FINDING) < text.index("ssl-00000001")
    assert "kvp-00000009" not in text
    assert "1 finding cleared: stepscope findings --all" in text


def test_all_are_listed_on_request(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [each["status"] for each in listed(log, capsys)["findings"]] == ["ended", "ended"]
    statuses = [each["status"] for each in listed(log, capsys, "--all")["findings"]]
    assert statuses == ["ended", "ended", "cleared"]


def test_what_was_open_in_a_closed_log_was_open_when_the_record_ended(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(log, "findings") == 0
    text = capsys.readouterr().out
    assert "▲ ENDED" in text
    assert text.count("open when the record ended") == 2
    assert "stepscope ack" not in text
    (first, _) = listed(log, capsys)["findings"]
    assert (first["is_open"], first["ended_by"]) == (False, "record_ended")


def test_an_acknowledged_one_is_still_listed(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(log, "ack", FINDING, "--author", "dana", "--note", "the new tenant") == 0
    (first,) = [each for each in listed(log, capsys)["findings"] if each["finding"] == FINDING]
    assert (first["status"], first["is_muted"]) == ("ended", True)
    assert (first["acknowledged_by"], first["acknowledged_note"]) == ("dana", "the new tenant")
    assert first["document"]["sentence"] == "The pool is full."


def test_an_acknowledgement_ends_when_it_opens_again(log: Path) -> None:
    call(log, "ack", FINDING, "--author", "dana")
    assert states(log)[FINDING].acknowledged_by == "dana"
    post_findings(log, [change(event="cleared", status="cleared", cleared_ts=time.time_ns())])
    post_findings(log, [change(event="reopened", num_openings=2)])
    assert states(log)[FINDING].acknowledged_by is None


def test_an_update_keeps_the_acknowledgement(log: Path) -> None:
    call(log, "ack", FINDING, "--author", "dana")
    post_findings(log, [change(event="updated", severity="critical")])
    state = states(log)[FINDING]
    assert (state.severity.name, state.acknowledged_by) == ("critical", "dana")


def test_what_has_cleared_cannot_be_acknowledged(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(log, "ack", "kvp-00000009") == 2
    assert "has cleared: there is nothing to acknowledge" in capsys.readouterr().err


def test_an_unknown_finding_lists_those_there_are(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(log, "ack", "kvp-0") == 2
    assert f"there are {FINDING}, ssl-00000001" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "silenced"),
    [
        ((FINDING,), {FINDING}),
        (("--rule", "seq-slot-limit"), {"ssl-00000001"}),
        (("--rule", "seq-slot-limit", "--engine", "9".zfill(16)), set()),
        (("--engine", HEX), {FINDING, "ssl-00000001"}),
        (("--rule", "kv-preemption-pressure"), {FINDING, "kvp-00000009"}),
    ],
)
def test_a_silence_is_of_what_it_names(
    log: Path, words: tuple[str, ...], silenced: set[str]
) -> None:
    assert call(log, "silence", *words, "--for", "2h", "--author", "lee") == 0
    now = time.time_ns()
    muted = {name for name, state in states(log).items() if state.is_silenced(now)}
    assert muted == silenced
    later = now + 2 * 3600 * NS
    assert not any(state.is_silenced(later) for state in states(log).values())
    assert len(states(log)) == 3


def test_a_silence_is_ended(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(log, "silence", FINDING, "--for", "2h")
    assert call(log, "unsilence", FINDING) == 0
    assert not states(log)[FINDING].is_silenced(time.time_ns())
    assert call(log, "unsilence", FINDING) == 2
    assert "is not silenced" in capsys.readouterr().err


def test_of_two_silences_the_longer_one_counts(log: Path) -> None:
    call(log, "silence", FINDING, "--for", "3h", "--author", "lee")
    call(log, "silence", "--rule", "kv-preemption-pressure", "--for", "1h", "--author", "dana")
    assert states(log)[FINDING].silenced_by == "lee"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--for", "2h"), "nothing silences everything"),
        ((FINDING, "--rule", "r", "--for", "2h"), "an ID names rule and engine already"),
        (("--rule", "r", "--for", "31d"), "--for is at most 30 days"),
        (("--rule", "r", "--for", "soon"), "--for is 'soon'"),
        (("--engine", "zz", "--for", "1h"), "16 hex digits"),
        (("--rule", "r" * 101, "--for", "1h"), "rule is a text of at most 100"),
    ],
)
def test_a_silence_of_nothing_or_too_much_is_refused(
    log: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert call(log, "silence", *words) == 2
    assert told in capsys.readouterr().err
    with open_log(log) as opened:
        assert read_silences(opened, time.time_ns()) == []


def test_the_story_of_one_finding_is_in_order(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(log, "ack", FINDING, "--author", "dana")
    post_findings(log, [change(event="updated", reason="count 10 -> 20")])
    capsys.readouterr()
    assert call(log, "findings", FINDING) == 0
    lines = capsys.readouterr().out.splitlines()
    words = [line.split() for line in lines if line.startswith("  ") and ":" in line[:6]]
    assert [line[1] for line in words] == ["opened", "acknowledged", "updated"]
    story = listed(log, capsys, FINDING)["changes"]
    assert [each["event"] for each in story] == ["opened", "acknowledged", "updated"]


def test_names_from_outside_do_not_reach_the_terminal(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b[31mdana\x07"
    body = json.dumps({"sentence": "evicted \x1b]0;owned\x07 \u202e"})
    post_findings(log, [change(event="updated", reason="\x1b[2J", body=body)])
    call(log, "ack", FINDING, "--author", hostile, "--note", hostile)
    for words in ((), (FINDING,)):
        assert call(log, "findings", *words) == 0
        text = capsys.readouterr().out
        assert not set(text) & {"\x1b", "\x07", "\u202e"}


SHARES = [
    {"kind": "burst_of_arrivals", "name": "burst of arrivals", "num": 78.4, "ratio": 0.8},
    {"kind": None, "name": "unexplained", "num": 19.6, "ratio": 0.2},
]


def test_shares_that_are_stored_are_shown(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.dumps({"sentence": "The pool is full.", "shares": SHARES})
    post_findings(log, [change(event="explained", body=body, reason="burst of arrivals 80 %")])
    assert call(log, "findings") == 0
    assert "shares  burst of arrivals 80 %, unexplained 20 % of 98" in capsys.readouterr().out
    (first, _) = listed(log, capsys)["findings"]
    assert first["shares"] == SHARES


@pytest.mark.parametrize("shares", ["all", [1], [{"name": "x", "num": "1", "ratio": 1}]])
def test_shares_that_are_none_are_not_shown(
    log: Path, capsys: pytest.CaptureFixture[str], shares: Any
) -> None:
    post_findings(log, [change(event="updated", body=json.dumps({"shares": shares}))])
    assert call(log, "findings") == 0
    assert "shares  " not in capsys.readouterr().out


@pytest.mark.parametrize("words", [(), ("--all",), (FINDING,)])
def test_json_is_as_the_published_schema_says(
    log: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    call(log, "ack", FINDING, "--author", "dana", "--note", "known")
    call(log, "silence", "--rule", "seq-slot-limit", "--for", "2h", "--author", "lee")
    post_findings(log, [change(event="explained", body=json.dumps({"shares": SHARES}))])
    schema = closed(json.loads(SCHEMA.read_text(encoding="utf-8")))
    jsonschema.validate(listed(log, capsys, *words), schema)


def test_a_key_that_the_schema_does_not_describe_is_noticed(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = closed(json.loads(SCHEMA.read_text(encoding="utf-8")))
    document = listed(log, capsys)
    document["findings"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(document, schema)


def test_nothing_stored_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collect(tmp_path / "log")
    assert call(tmp_path / "log", "findings") == 0
    assert capsys.readouterr().out.strip() == "✓ nothing is open"


def test_what_people_said_stands_among_the_changes(log: Path) -> None:
    post_findings(log, [saying("silenced", rule="r", until_ts=time.time_ns() + NS)])
    with open_log(log) as opened:
        events = [each.event for each in read_changes(opened)]
    assert events == ["opened", "opened", "cleared", "silenced"]
