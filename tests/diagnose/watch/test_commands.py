"""`stepscope watch` as it is typed: on a closed log once, on a live one for as long as it lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope import main
from telemetry.collector import find_collector, stop_collector
from telemetry.store.posting import post_findings
from tests.diagnose.watch.receiver import receiver
from tests.telemetry.collector.builders import (
    RINGS,
    collect,
    collector_process,
    record,
    ring_for,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.posts import FINDING, change

SLOTS = {"finding": "ssl-00000001", "rule": "seq-slot-limit", "severity": "medium"}


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A closed log in which two findings are open."""
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    ring.close()
    collect(log)
    post_findings(log, [change(), change(**SLOTS)])
    return log


@pytest.fixture
def standing(live: Path) -> Path:
    """A live log in which the same two are open."""
    post_findings(live, [change(), change(**SLOTS)])
    return live


def once(log: Path, *words: str) -> int:
    return main(["watch", "--log", str(log), "--once", *words])


def test_once_tells_what_is_open(standing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(standing) == 0
    lines = capsys.readouterr().out.splitlines()
    told = [line.split()[2:4] for line in lines if "●" not in line]
    assert told == [
        ["OPEN", "kv-preemption-pressure"],
        ["OPEN", "seq-slot-limit"],
    ]


def test_a_level_leaves_out_milder_ones(standing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(standing, "--level", "high", "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["finding"] == FINDING


@pytest.mark.parametrize(("level", "code"), [("medium", 1), ("high", 1), ("critical", 0)])
def test_fail_on_is_an_exit_code(standing: Path, level: str, code: int) -> None:
    assert once(standing, "--fail-on", level) == code


def test_nothing_open_is_said_so(standing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for finding in (FINDING, "ssl-00000001"):
        assert main(["ack", "--log", str(standing), finding]) == 0
    capsys.readouterr()
    assert once(standing, "--fail-on", "info") == 0
    assert capsys.readouterr().out == "✓ nothing is open that nobody knows of\n"


def test_once_waits_until_the_receiver_has_it(standing: Path) -> None:
    with receiver(503) as heard:
        assert once(standing, "--webhook", heard.url, "--format", "slack") == 0
    assert len(heard.received) == 3
    assert all(payload["blocks"] for payload in heard.payloads)


def test_alerts_go_to_an_alertmanager(standing: Path) -> None:
    with receiver() as heard:
        base = heard.url.removesuffix("/hook")
        assert once(standing, "--webhook", base, "--format", "alertmanager") == 0
    assert {each.path for each in heard.received} == {"/api/v2/alerts"}
    fired = {alert["labels"]["finding"] for alerts in heard.payloads for alert in alerts}
    assert fired == {FINDING, "ssl-00000001"}


def test_nothing_of_a_closed_log_is_open_any_more(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert once(closed, "--fail-on", "info") == 0
    assert capsys.readouterr().out.splitlines() == [
        "✓ nothing is open that nobody knows of",
        "● 2 findings open when the record ended: stepscope findings --all",
    ]


def test_a_closed_log_is_watched_once_only(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "--log", str(closed)]) == 2
    assert "nothing changes there" in capsys.readouterr().err


def test_a_secret_without_a_webhook_is_a_mistake(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert once(closed, "--secret-file", "/dev/zero") == 2
    assert "name that too" in capsys.readouterr().err


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    log = tmp_path / "log"
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    ring = ring_for(log)
    record(ring, 0, 3)
    with collector_process(log):
        wait_for_collector(log)
        yield log
    ring.close()


def test_a_live_log_is_watched_until_something_bad_comes(live: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-twenty-and-more")
    secret.chmod(0o600)
    with receiver() as heard:
        command = [sys.executable, "-m", "stepscope", "watch", "--log", str(live)]
        hook = ["--webhook", heard.url, "--secret-file", str(secret)]
        with subprocess.Popen(
            [*command, *hook, "--fail-on", "high"], env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline().startswith("changes of findings only")
            post_findings(live, [change(**SLOTS)])
            assert read_until(process, "seq-slot-limit")
            post_findings(live, [change(), change(**SLOTS, event="cleared", status="cleared")])
            rest, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "OPENED   kv-preemption-pressure" in rest
    assert "no analyst runs beside this collector" in errors
    first, *others = [each["event"] for each in heard.payloads]
    assert first in ("open", "opened")  # found by the first look, or by the next
    assert others == ["opened", "cleared"]
    assert all("X-Stepscope-Signature" in each.headers for each in heard.received)


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """Returns the next line with these words; an empty text where none comes."""
    assert process.stdout is not None
    return next((line for line in process.stdout if wanted in line), "")


def test_a_collector_that_ends_and_comes_back_is_followed(live: Path) -> None:
    """What is posted meanwhile is told as well."""
    command = [sys.executable, "-m", "stepscope", "watch", "--log", str(live), "--json"]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            post_findings(live, [change(**SLOTS)])
            assert json.loads(process.stdout.readline())["rule"] == "seq-slot-limit"
            end_collector(live)
            post_findings(live, [change()])
            with collector_process(live):
                assert json.loads(process.stdout.readline())["finding"] == FINDING
        finally:
            process.terminate()
            process.communicate(timeout=30)


def end_collector(log: Path) -> None:
    stop_collector(log)
    wait_until(lambda: find_collector(log) is None)
