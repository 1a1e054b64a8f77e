"""What people said of findings, in `stepscope diagnose`: known ones, silenced ones."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from diagnose.diagnosis import Diagnosis, diagnose
from diagnose.json_output import to_document
from diagnose.life.said import Said, with_life
from diagnose.reading import NS
from diagnose.text.finding_text import told_shares
from stepscope import main
from telemetry.store import open_log
from telemetry.store.posting import post_findings
from tests.dashboard import logs
from tests.diagnose.test_json_output import SCHEMA, closed
from tests.telemetry.posts import change, saying

RULE = "kv-preemption-pressure"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A closed log of a storm, of which an analyst has stored nothing."""
    return logs.write_log(tmp_path, logs.storm().builder())


def diagnosed(log: Path, *words: str) -> int:
    return main(["diagnose", "--log", str(log), *words])


def found(log: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Returns the finding of the rule, as JSON, after checking all of it against the schema."""
    capsys.readouterr()
    diagnosed(log, "--json")
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, closed(json.loads(SCHEMA.read_text(encoding="utf-8"))))
    own: dict[str, Any] = next(each for each in document["findings"] if each["rule"] == RULE)
    return own


def silence(log: Path, seconds: int = 3600, **place: Any) -> int:
    """Silences the rule, or what `place` names; returns until when."""
    until_ts = time.time_ns() + seconds * NS
    place = place or {"rule": RULE}
    post_findings(log, [saying("silenced", until_ts=until_ts, note="load test", **place)])
    return until_ts


def engine_of(log: Path) -> int:
    with open_log(log) as opened:
        return int(opened.query("SELECT engine FROM engines")["engine"][0].as_py())


def test_a_silenced_finding_is_a_line_and_fails_nothing(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diagnosed(log, "--fail-on", "medium") == 1
    assert "do one of these" in capsys.readouterr().out
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(silence(log) // NS))
    assert diagnosed(log, "--fail-on", "info") == 0
    text = capsys.readouterr().out
    assert f"silenced by dana until {until} UTC: load test" in text
    assert RULE in text
    assert "1 finding, 1 silenced" in text
    assert "do one of these" not in text


def test_a_silence_that_is_over_mutes_nothing(log: Path) -> None:
    silence(log, -1)
    assert diagnosed(log, "--fail-on", "high") == 1


def test_a_silence_of_something_else_mutes_nothing(log: Path) -> None:
    silence(log, rule="seq-slot-limit")
    silence(log, engine=engine_of(log) ^ 1)
    assert diagnosed(log, "--fail-on", "high") == 1


def test_a_silence_of_the_engine_mutes_all_of_it(log: Path) -> None:
    silence(log, engine=engine_of(log))
    assert diagnosed(log, "--fail-on", "info") == 0


def test_of_two_silences_the_longer_one_is_told(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until_ts = silence(log, 7200)
    silence(log, 60, engine=engine_of(log))
    until = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(until_ts // NS))
    assert found(log, capsys)["silenced"]["until"].startswith(until)


def test_json_says_who_said_what(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = found(log, capsys)
    assert (before["acknowledged"], before["silenced"]) == (None, None)
    silence(log)
    post_findings(log, [change(engine=engine_of(log), finding=before["id"])])
    known = {"engine": engine_of(log), "finding": before["id"], "rule": RULE}
    post_findings(log, [saying("acknowledged", **known)])
    after = found(log, capsys)
    assert (after["acknowledged"]["by"], after["acknowledged"]["note"]) == ("dana", "known")
    assert (after["silenced"]["by"], after["silenced"]["note"]) == ("dana", "load test")


def test_an_acknowledged_finding_is_told_whole_and_counts(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"engine": engine_of(log), "finding": found(log, capsys)["id"]}
    post_findings(log, [change(**known)])
    post_findings(log, [saying("acknowledged", rule=RULE, **known)])
    assert diagnosed(log, "--fail-on", "high") == 1
    text = capsys.readouterr().out
    assert "acknowledged by dana at" in text
    assert "do one of these" in text


def test_what_was_said_moves_no_cursor(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    until_ts = time.time_ns() + 3600 * NS
    hostile = {"author": "\x1b[31mdana", "note": "\x07\u202e" * 20}
    post_findings(log, [saying("silenced", rule=RULE, until_ts=until_ts, **hostile)])
    assert diagnosed(log) == 0
    assert not set(capsys.readouterr().out) & {"\x1b", "\x07", "\u202e"}


# ---------------------------------------------------------------------------- what is stored of it

SHARES = [
    {"kind": "burst_of_arrivals", "name": "burst of arrivals", "num": 75.0, "ratio": 0.75},
    {"kind": None, "name": "unexplained", "num": 25.0, "ratio": 0.25},
]


def followed(log: Path, effort: Any = "none") -> tuple[Diagnosis, Said]:
    """Returns the diagnosis with what is stored, and what is said of its finding."""
    with open_log(log) as opened:
        found, said = with_life(opened, diagnose(opened, effort=effort), time.time_ns())
    return found, said[found.findings[0].id]


def store(log: Path, body: dict[str, Any], **columns: Any) -> int:
    """Stores a life of the finding; returns up to when it was replayed."""
    found, _ = followed(log)
    own = found.findings[0]
    shared_ts = own.span.opened_ts + NS
    place = {"engine": own.engine, "finding": own.id, "rule": own.rule}
    stored = place | {"opened_ts": own.span.opened_ts, "body": json.dumps(body)} | columns
    post_findings(log, [change(**stored)])
    return shared_ts


def test_a_look_that_replays_nothing_has_the_shares_that_are_stored(log: Path) -> None:
    shared_ts = store(log, {"sentence": "x", "shares": SHARES})
    found, said = followed(log)
    own = found.findings[0]
    assert [(share.kind, share.num) for share in own.shares] == [
        ("burst_of_arrivals", 75), (None, 25)
    ]  # fmt: skip
    assert own.shared_ts is None
    store(log, {"sentence": "x", "shares": SHARES, "shared_ts": shared_ts})
    found, said = followed(log)
    assert found.findings[0].shared_ts == shared_ts
    assert said.state is not None
    assert said.state.finding == own.id


def test_a_look_that_replays_keeps_its_own_shares(log: Path) -> None:
    store(log, {"sentence": "x", "shares": SHARES})
    found, _ = followed(log, "usual")
    assert [share.num for share in found.findings[0].shares] != [75, 25]


def test_shares_of_another_opening_are_not_taken(log: Path) -> None:
    later = followed(log)[0].findings[0].span.opened_ts + 3600 * NS
    store(log, {"sentence": "x", "shares": SHARES}, opened_ts=later)
    assert followed(log)[0].findings[0].shares == ()


def test_shares_of_a_beginning_are_not_taken_for_what_came_after(log: Path) -> None:
    num = dict(followed(log)[0].findings[0].impact.numbers)["num_preemptions"]
    assert num is not None
    for covered, are_taken in ((0.4, False), (0.6, True)):
        store(log, {"sentence": "x", "shares": [SHARES[1] | {"num": covered * num, "ratio": 1}]})
        assert bool(followed(log)[0].findings[0].shares) is are_taken


def test_json_says_until_when_stored_shares_were_replayed(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "shared_ts" not in found(log, capsys)
    shared_ts = store(log, {"sentence": "x", "shares": SHARES, "shared_ts": 0})
    store(log, {"sentence": "x", "shares": SHARES, "shared_ts": shared_ts})
    whole = to_document(followed(log)[0])
    jsonschema.validate(whole, closed(json.loads(SCHEMA.read_text(encoding="utf-8"))))
    assert whole["findings"][0]["shared_ts"] == shared_ts


def test_text_says_until_when_stored_shares_were_replayed(log: Path) -> None:
    shared_ts = store(log, {"sentence": "x", "shares": SHARES})
    store(log, {"sentence": "x", "shares": SHARES, "shared_ts": shared_ts})
    told = told_shares(followed(log)[0].findings[0])
    assert told.startswith("burst of arrivals 75 %, unexplained 25 % of 100 (stored by the analyst")


def test_what_nobody_followed_has_no_life(log: Path) -> None:
    assert followed(log)[1] == Said(cleared_ts=followed(log)[0].findings[0].span.cleared_ts)
