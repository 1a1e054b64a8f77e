"""Readers over TCP: only on request, and only who shows the token."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.collector import find_collector
from telemetry.errors import CollectorError, LogNotFound, QueryRefused
from telemetry.store import open_log
from telemetry.store.token import TOKEN_VARIABLE, open_door
from tests.telemetry.collector.builders import (
    RINGS,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
    wait_until,
)

TOKEN = "a-token-of-twenty-and-more"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A log of 20 steps whose collector was started by the command, with its flags."""
    folder = tmp_path_factory.mktemp("tcp")
    token = write_token(folder / "token")
    log = folder / "log"
    ring = ring_for(log)
    record(ring, 0, 20)
    flags = ["--log", str(log), "--listen", "127.0.0.1:0", "--token-file", str(token)]
    with subprocess.Popen(
        [sys.executable, "-m", "stepscope", "collect", *flags],
        env={**os.environ, "STEPSCOPE_RING_DIR": str(log.parent / RINGS)},
        stderr=subprocess.DEVNULL,
    ) as collector:
        try:
            wait_for_collector(log)
            wait_until(lambda: rows(log, "SELECT count(*) FROM steps") == [(20,)])
            yield log
        finally:
            collector.terminate()
    ring.close()


def write_token(path: Path, token: str = TOKEN, mode: int = 0o600) -> Path:
    path.write_text(token)
    path.chmod(mode)
    return path


def target(log: Path) -> Path:
    notice = find_collector(log)
    assert notice is not None
    assert notice.tcp_port is not None
    return Path(f"tcp://127.0.0.1:{notice.tcp_port}")


def test_who_shows_the_token_reads(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, str(live.parent / "token"))
    assert rows(target(live), "SELECT count(*) FROM steps") == [(20,)]


def test_a_query_is_asked_from_elsewhere(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, str(live.parent / "token"))
    port = str(target(live)).rsplit(":", 1)[1]
    asked = ["query", "SELECT count(*) AS n FROM steps", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", *asked, "--log", f"tcp://127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [{"n": 20}]


def test_over_tcp_nothing_is_written_either(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, str(live.parent / "token"))
    with open_log(target(live)) as log, pytest.raises(QueryRefused):
        log.query("DELETE FROM steps")


def test_a_wrong_token_is_refused(
    live: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, str(write_token(tmp_path / "token", TOKEN + "x")))
    with pytest.raises(QueryRefused, match="token is wrong"):
        open_log(target(live))


def test_no_token_is_refused(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(LogNotFound, match=TOKEN_VARIABLE):
        open_log(target(live))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b'{"sql": "SELECT 1", "params": null, "timeout_seconds": 1, "max_rows": 1}',
        b'{"ask": "status"}',
        b'{"token": null}',
        b'{"token": ""}',
        b'{"token": ["' + TOKEN.encode() + b'"]}',
        b"GET / HTTP/1.1",
    ],
)
def test_who_begins_with_anything_else_gets_no_answer(live: Path, said: bytes) -> None:
    address = str(target(live)).removeprefix("tcp:/").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=20) as client:
        client.sendall(len(said).to_bytes(4, "little") + said)
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(4096)
    assert b"arrow_bytes" not in answer
    assert b"num_rings" not in answer
    assert rows(live, "SELECT 1") == [(1,)]


def test_without_the_request_nobody_listens(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with collector_process(log):
        wait_for_collector(log)
        notice = find_collector(log)
    assert notice is not None
    assert notice.tcp_port is None


def test_a_token_that_is_missing_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    door = open_door("127.0.0.1:0", path, tmp_path / "log")
    assert door is not None
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert path.read_text().strip() == door.token
    assert len(door.token) > 30
    assert open_door("127.0.0.1:0", path, tmp_path / "log") == door


@pytest.mark.parametrize(
    ("listen", "token", "said"),
    [
        ("127.0.0.1:0", None, "belong together"),
        (None, "token", "belong together"),
        ("nowhere", "token", "write HOST:PORT"),
        ("127.0.0.1:99999", "token", "write HOST:PORT"),
        ("127.0.0.1:0", "log/token", "lies in the log directory"),
        ("127.0.0.1:0", "short", "has 5 characters"),
        ("127.0.0.1:0", "open", "readable by others"),
        ("127.0.0.1:0", "no/such/folder", "cannot be made"),
    ],
)
def test_a_door_that_is_not_safe_is_refused(
    tmp_path: Path, listen: str | None, token: str | None, said: str
) -> None:
    (tmp_path / "log").mkdir()
    write_token(tmp_path / "short", "short")
    write_token(tmp_path / "open", mode=0o644)
    with pytest.raises(CollectorError, match=said):
        open_door(listen, None if token is None else tmp_path / token, tmp_path / "log")


def test_without_flags_there_is_no_door(tmp_path: Path) -> None:
    assert open_door(None, None, tmp_path) is None
