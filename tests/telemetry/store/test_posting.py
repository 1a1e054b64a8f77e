"""What may be posted, and where it lands."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnose.life.machine import Event
from telemetry.collector import find_collector
from telemetry.errors import LogBusy, LogNotFound, PostRefused
from telemetry.store import wire
from telemetry.store.lock import take_lock
from telemetry.store.posting import CHANGES, MAX_BODY_CHARACTERS, MAX_ROWS, checked, post_findings
from telemetry.store.token import TOKEN_VARIABLE, Door
from tests.telemetry.collector.builders import (
    collect,
    collecting,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.posts import ENGINE, FINDING, change, saying

STORED = "SELECT finding, event, author FROM findings ORDER BY ts"


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"event": "vanished"}, "event is one of"),
        ({"event": None}, "needs event and ts"),
        ({"ts": None}, "needs event and ts"),
        ({"ts": 1.5}, "ts is a whole number"),
        ({"ts": True}, "ts is a whole number"),
        ({"engine": -1}, "engine is a whole number"),
        ({"engine": 1 << 64}, "engine is a whole number"),
        ({"engine": None}, "lacks engine"),
        ({"finding": "kvp'; DROP TABLE"}, "finding is an id"),
        ({"finding": "x" * 64}, "finding is an id"),
        ({"severity": "terrible"}, "severity is one of critical, high, info, medium"),
        ({"status": "gone"}, "status is one of"),
        ({"rule": "r" * 101}, "rule is a text of at most 100 characters"),
        ({"rule": 7}, "rule is a text"),
        ({"body": "[]"}, "body is no JSON object"),
        ({"body": "{"}, "body is no JSON object"),
        ({"body": "[" * 100_000}, "body is no JSON object"),
        ({"body": '"' + "x" * MAX_BODY_CHARACTERS + '"'}, "body is a text of at most"),
        ({"num_openings": 0}, "num_openings is a whole number"),
        ({"import_id": 1}, "has a column that `findings` has not"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(PostRefused, match=told):
        checked([change(**columns)])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (saying("acknowledged", engine=1, rule="r"), "lacks finding"),
        (saying("silenced", rule="r"), "lacks until_ts"),
        (saying("silenced", until_ts=1), "names neither a rule nor an engine"),
        (saying("unsilenced", rule="r", author=None), "lacks author"),
        (saying("silenced", rule="r", until_ts=1, note="n" * 2001), "note is a text of at most"),
    ],
)
def test_what_a_person_says_has_to_be_complete(row: dict[str, Any], told: str) -> None:
    with pytest.raises(PostRefused, match=told):
        checked([row])


@pytest.mark.parametrize(
    "posted", [None, [], {}, "rows", [None], [[]], [change()] * (MAX_ROWS + 1)]
)
def test_a_post_is_a_list_of_a_few_rows(posted: Any) -> None:
    with pytest.raises(PostRefused):
        checked(posted)


def test_every_event_of_the_machine_may_be_posted() -> None:
    assert set(Event.__args__) == CHANGES  # type: ignore[attr-defined]


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """The log of an engine that has ended, without a collector."""
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    ring.close()
    collect(log)
    return log


def test_a_closed_log_is_written_directly(closed: Path) -> None:
    post_findings(closed, [change(), saying("silenced", rule="r", until_ts=9)])
    assert rows(closed, STORED) == [(FINDING, "opened", None), (None, "silenced", "dana")]
    assert rows(closed, "SELECT count(*) FROM steps") == [(3,)]


def test_a_refused_row_leaves_nothing(closed: Path) -> None:
    with pytest.raises(PostRefused):
        post_findings(closed, [change(), change(event="vanished")])
    assert rows(closed, STORED) == []


def test_a_log_that_somebody_has_locked_is_left_alone(closed: Path, tmp_path: Path) -> None:
    lock = take_lock(closed)
    try:
        with pytest.raises(LogBusy):
            post_findings(closed, [change()])
    finally:
        os.close(lock)


def test_a_folder_without_a_log_becomes_none(tmp_path: Path) -> None:
    with pytest.raises(LogNotFound, match="holds no step log"):
        post_findings(tmp_path, [change()])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Path]:
    """A log with a collector that runs as a process of its own."""
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    with collector_process(log):
        wait_for_collector(log)
        yield log
    ring.close()


def connected(log: Path) -> socket.socket:
    notice = find_collector(log)
    assert notice is not None
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(notice.socket)
    return client


def test_a_live_log_takes_posts_through_its_collector(live: Path) -> None:
    post_findings(live, [change()])
    assert rows(live, STORED) == [(FINDING, "opened", None)]


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ring = ring_for(log)
    record(ring, 0, 3)
    with collector_process(log) as collector:
        wait_for_collector(log)
        post_findings(log, [change()])
        collector.kill()
        collector.wait(timeout=30)
    ring.close()
    wait_until(lambda: find_collector(log) is None)
    assert rows(log, STORED) == [(FINDING, "opened", None)]


def test_the_collector_checks_for_itself(live: Path) -> None:
    with connected(live) as client:
        wire.send_post(client, [change(event="vanished")])
        with pytest.raises(PostRefused, match="event is one of"):
            wire.receive_stored(client)
        wire.send_post(client, [change()])
        assert wire.receive_stored(client) == 1


def test_a_row_of_the_future_is_refused(live: Path) -> None:
    with pytest.raises(PostRefused, match="off the collector's clock"):
        post_findings(live, [change(ts=change()["ts"] + 7200 * 10**9)])


def test_a_post_that_is_too_long_costs_its_sender_alone(live: Path) -> None:
    with connected(live) as client:
        client.sendall((64 << 20).to_bytes(4, "little"))
        assert client.recv(1) == b""
    post_findings(live, [change()])


def test_a_post_twice_is_one_change(live: Path) -> None:
    row = change()
    post_findings(live, [row])
    post_findings(live, [row])
    assert rows(live, "SELECT num_changes FROM finding_states") == [(1,)]


def test_over_tcp_it_takes_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, token = tmp_path / "log", tmp_path / "token"
    token.write_text("a-token-of-twenty-and-more")
    token.chmod(0o600)
    record(ring := ring_for(log), 0, 1)
    with collecting(log, tcp=Door("127.0.0.1", 0, token.read_text())) as collector:
        collector._listen()
        assert collector._endpoint is not None
        port = collector._endpoint.tcp_port
        with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
            wire.send_post(stranger, [change()])
            assert b"stored" not in stranger.recv(4096)
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
        with pytest.raises(LogNotFound, match=TOKEN_VARIABLE):
            post_findings(Path(f"tcp://127.0.0.1:{port}"), [change()])
        assert not collector._inbox.is_waiting
    ring.close()


def test_who_shows_the_token_posts_over_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, token = tmp_path / "log", tmp_path / "token"
    token.write_text("a-token-of-twenty-and-more")
    token.chmod(0o600)
    monkeypatch.setenv(TOKEN_VARIABLE, str(token))
    ring = ring_for(log)
    record(ring, 0, 1)
    door = f"Door('127.0.0.1', 0, {token.read_text()!r})"
    prologue = (
        "import functools, telemetry.collector.__main__ as main\n"
        "from telemetry.store.token import Door\n"
        f"main.run = functools.partial(main.run, tcp={door})"
    )
    with collector_process(log, prologue=prologue):
        wait_for_collector(log)
        notice = find_collector(log)
        assert notice is not None
        post_findings(Path(f"tcp://127.0.0.1:{notice.tcp_port}"), [change()])
        assert rows(log, "SELECT engine FROM findings") == [(ENGINE,)]
    ring.close()
