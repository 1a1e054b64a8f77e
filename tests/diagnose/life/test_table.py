"""The life of a finding as a table: what stands in it, and what it says of what is not known."""

from __future__ import annotations

from typing import Any

from diagnose.document import plain
from diagnose.finding import Severity
from diagnose.life.said import Said
from diagnose.life.state import FindingState, Silence
from diagnose.life.table import life_table
from diagnose.reading import NS

NOON = 1_764_504_000 * NS
"""2025-11-30 12:00:00 UTC."""
MINUTE = 60 * NS


def state(**own: Any) -> FindingState:
    """Returns a finding that opened at noon and is open, but for `own`."""
    values: dict[str, Any] = {
        "engine": 1,
        "finding": "kvp-1",
        "rule": "kv-preemption-pressure",
        "rule_version": 1,
        "severity": Severity.high,
        "status": "open",
        "opened_ts": NOON,
        "cleared_ts": None,
        "first_opened_ts": NOON - 60 * MINUTE,
        "changed_ts": NOON + 5 * MINUTE,
        "event": "updated",
        "reason": None,
        "num_openings": 2,
        "num_changes": 7,
        "acknowledged_ts": None,
        "acknowledged_by": None,
        "acknowledged_note": None,
        "silenced_until_ts": None,
        "silenced_by": None,
        "silenced_note": None,
        "sentence": None,
        "body": None,
    }
    return FindingState(**values | own)


def rows(said: Said) -> dict[str, str]:
    return {plain(name): plain(text) for name, text in life_table(said).rows}


def test_an_open_finding_is_open_since_it_opened_not_since_it_was_told_last() -> None:
    assert rows(Said(state=state())) == {
        "First opened": "2025-11-30 11:00:00 UTC",
        "Now": "open, since 2025-11-30 12:00:00 UTC",
        "Opened": "2 times",
        "Told": "7 changes",
    }


def test_a_finding_that_is_over_is_so_since_it_cleared() -> None:
    over = state(status="cleared", cleared_ts=NOON + MINUTE)
    assert rows(Said(state=over))["Now"] == "cleared, since 2025-11-30 12:01:00 UTC"


def test_one_that_comes_and_goes_says_so() -> None:
    said = Said(state=state(status="flapping", event="flapping"))
    assert rows(said)["Now"] == "flapping: comes and goes, since 2025-11-30 12:05:00 UTC"
    assert said.words == "comes and goes"


def test_one_that_ended_open_says_when_and_how() -> None:
    ended = state(status="ended", ended_ts=NOON + 2 * MINUTE, ended_by="engine_died")
    said = Said(state=ended)
    assert rows(said)["Now"] == "ended: open when the record ended at 12:02:00.0: engine died"
    assert said.words == "open when the record ended at 12:02:00.0: engine died"


def test_an_end_that_nobody_told_in_time_is_told_from_the_log() -> None:
    ended = state(status="ended", ended_ts=NOON + 2 * MINUTE, ended_by="record_ended")
    said = Said(state=ended, cleared_ts=NOON + MINUTE)
    assert rows(said)["Now"].endswith("at 12:02:00.0; by the log it was over at 12:01:00.0")
    assert said.words == ""


def test_who_acknowledged_and_who_silenced_it_stand_with_note_and_end() -> None:
    known = state(acknowledged_ts=NOON, acknowledged_by="dana", acknowledged_note="the new tenant")
    silence = Silence(
        engine=None, rule=None, since_ts=NOON, until_ts=NOON + MINUTE, author="lee", note=None
    )
    said = rows(Said(state=known, silence=silence))
    assert said["Acknowledged"] == "2025-11-30 12:00:00 UTC by dana: the new tenant"
    assert said["Silenced"] == "until 2025-11-30 12:01:00 UTC by lee"


def test_a_silence_that_is_over_is_told_as_over() -> None:
    said = Said(state=state(silenced_until_ts=NOON, silenced_by=None, silenced_note="load test"))
    assert rows(said)["Silenced"] == (
        "until 2025-11-30 12:00:00 UTC (over) by nobody named: load test"
    )
    assert not said.is_silenced


def test_nothing_stored_is_no_row_and_a_silence_alone_is_one() -> None:
    silence = Silence(
        engine=None, rule="r", since_ts=NOON, until_ts=NOON + MINUTE, author="lee", note=None
    )
    assert rows(Said()) == {}
    assert list(rows(Said(silence=silence))) == ["Silenced"]


def test_what_people_wrote_moves_no_cursor() -> None:
    hostile = "\x1b[31m\u202e" * 200
    said = rows(Said(state=state(acknowledged_ts=1, acknowledged_by=hostile,
                                 acknowledged_note=hostile)))  # fmt: skip
    assert not {"\x1b", "\u202e"} & set(said["Acknowledged"])
    assert len(said["Acknowledged"]) < 300
