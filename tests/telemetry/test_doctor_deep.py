"""`doctor --deep`: whom it asks, what it makes of the answer, and what it returns."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from telemetry.doctor.books import COUNTS, KV_COUNTS
from telemetry.errors import StepscopeError
from telemetry.records import EngineRow, RunClock
from telemetry.ring import RingRecorder
from tests.telemetry.collector.builders import MIB, RINGS, ring_for
from tests.telemetry.test_commands import run

HEALTHY: dict[str, Any] = {
    "error": None,
    "duration_ns": 4_200_000,
    "report": {
        **dict.fromkeys(COUNTS, 0),
        "step": 42,
        "num_running_blocks": 1_000,
        "num_running": 256,
        "problems": [],
        "kv": {
            **dict.fromkeys(KV_COUNTS, 0),
            "num_usable_blocks": 1_500,
            "num_free_unhashed_blocks": 400,
            "num_free_cached_blocks": 100,
            "num_references": 1_024,
            "num_table_entries": 1_024,
            "num_cached_blocks": 900,
            "num_blocks_rehashed": 800,
        },
    },
}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_RING_DIR", str(tmp_path / RINGS))
    return tmp_path / "log"


@contextmanager
def answering(body: object, status: int = 200) -> Iterator[str]:
    """Yields the address of a server that gives every POST the same answer."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def closed_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def running_engine(log: Path, url: str | None, clock: RunClock | None = None) -> Iterator[str]:
    """Yields the number of an engine that runs, as far as its ring can tell."""
    ring = ring_for(log, clock=clock)
    ring.describe_engine(EngineRow(model="tiny", api_url=url))
    yield f"{ring.engine:016x}"
    ring.close()


def test_a_healthy_engine_of_the_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = RunClock.start()
    answer = {**HEALTHY, "pid": os.getpid(), "started_ts": clock.wall_anchor_ns}
    with answering(answer) as url, running_engine(log, url, clock) as engine:
        assert run("doctor", "--log", str(log), "--deep") == 0
    said = capsys.readouterr().out.partition("deep check")[2]
    assert said.splitlines() == [
        f" of engine {engine} at {url}",
        "✓ healthy          before step 42; the engine stood still for 4.2 ms",
        "  KV blocks",
        "  free, nothing in them          400",
        "  free, cached                   100",
        "  held by running requests     1,000",
        "  held by waiting requests         0",
        "  kept after a request's end       0",
        "  sum                          1,500  = the pool's 1,500",
        "✓ references       1,024 = 1,024 entries of block tables",
        "✓ cached blocks    900; the keys of 800 that requests hold were worked out anew",
        "✓ requests         256 running, 0 waiting, 0 waiting with blocks, "
        "0 ended with blocks kept",
    ]


def test_a_broken_engine_is_told_in_its_own_words(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = ["free + used is not the pool: 2 and 3", "block 7: \x1b[31mlost from the index"]
    report = {**HEALTHY["report"], "problems": problems}
    with answering({**HEALTHY, "report": report, "pid": 1, "started_ts": 2}) as url:
        assert run("doctor", "--log", str(log), "--deep", "--url", url) == 1
    said = capsys.readouterr().out
    assert (
        "✗ broken           free + used is not the pool: 2 and 3; "
        "block 7: \\x1b[31mlost from the index" in said
    )
    assert "what to do       restart this engine" in said


def test_books_that_cannot_be_read_are_broken(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"pid": 1, "started_ts": 2, "duration_ns": 3, "report": None, "error": "KeyError: 7"}
    with answering(answer) as url:
        assert run("doctor", "--log", str(log), "--deep", "--url", url) == 1
    assert "✗ broken           the books cannot be read: KeyError: 7" in capsys.readouterr().out


def not_checked(log: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """Runs the deep check, which has to come to nothing, and returns why."""
    assert run("doctor", "--log", str(log), "--deep", *flags) == 3
    return capsys.readouterr().out.partition("– not checked ")[2].strip()


def test_an_engine_that_cannot_be_reached_is_not_checked(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = closed_address()
    with running_engine(log, url):
        assert not_checked(log, capsys) == f"{url} cannot be reached: Connection refused"


def test_an_engine_that_listens_everywhere_is_asked_here(log: Path) -> None:
    clock = RunClock.start()
    answer = {**HEALTHY, "pid": os.getpid(), "started_ts": clock.wall_anchor_ns}
    with answering(answer) as url:
        everywhere = url.replace("127.0.0.1", "0.0.0.0")
        with running_engine(log, everywhere, clock):
            assert run("doctor", "--log", str(log), "--deep") == 0


def test_an_engine_without_an_api_is_not_checked(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_engine(log, None):
        assert "has not said where its API listens" in not_checked(log, capsys)


def test_an_engine_that_is_not_ours_is_not_checked(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = RingRecorder(
        log.parent / RINGS, RunClock.start(), log=log, source="vllm", ring_bytes=MIB
    )
    assert not_checked(log, capsys).startswith("vllm has no such check")
    ring.close()


def test_another_engine_at_the_same_address_is_not_taken_for_it(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        answering({**HEALTHY, "pid": 77, "started_ts": 2}) as url,
        running_engine(log, url),
    ):
        assert not_checked(log, capsys) == f"another engine answers at {url}, pid 77"


def test_a_server_without_the_check_says_where_it_may_be_asked(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering({"detail": "Not Found"}, 404) as url:
        said = not_checked(log, capsys, "--url", url)
    assert "no Stepscope engine of this version" in said


def test_what_an_engine_that_cannot_be_asked_says_is_passed_on(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering({"error": {"message": "the engine is starting"}}, 503) as url:
        assert not_checked(log, capsys, "--url", url) == f"{url} says: the engine is starting"


@pytest.mark.parametrize("body", [b"<html>", {}, [], {**HEALTHY, "pid": 1}, b"\xff"])
def test_an_answer_that_is_none_is_not_health(
    log: Path, capsys: pytest.CaptureFixture[str], body: object
) -> None:
    with answering(body) as url:
        assert "an answer that cannot be read (HTTP 200)" in not_checked(log, capsys, "--url", url)


def test_without_a_running_engine_there_is_nothing_to_check(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("doctor", "--log", str(log), "--deep") == 3
    assert "no running engine to check" in capsys.readouterr().out


def test_a_healthy_engine_does_not_hide_a_broken_one(log: Path) -> None:
    clock = RunClock.start()
    answer = {**HEALTHY, "pid": os.getpid(), "started_ts": clock.wall_anchor_ns}
    broken = {**answer, "report": {**HEALTHY["report"], "problems": ["lost"]}}
    with (
        answering(answer) as healthy_url,
        answering(broken) as broken_url,
        running_engine(log, healthy_url, clock),
        running_engine(log, broken_url, clock),
    ):
        assert run("doctor", "--log", str(log), "--deep") == 1


def test_the_deep_check_as_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with answering({**HEALTHY, "pid": 1, "started_ts": 2}) as url:
        run("doctor", "--log", str(log), "--deep", "--url", url, "--format", "json")
    (found,) = json.loads(capsys.readouterr().out)["deep"]
    assert (found["url"], found["verdict"], found["reason"]) == (url, "healthy", None)
    assert found["counts"]["num_usable_blocks"] == 1_500


def test_without_deep_nobody_is_asked(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_engine(log, closed_address()):
        assert run("doctor", "--log", str(log), "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["deep"] is None


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://there", "http://", "http://a:b"])
def test_an_address_that_is_none_is_refused(log: Path, url: str) -> None:
    with pytest.raises(StepscopeError, match="is no address: write it like"):
        run("doctor", "--log", str(log), "--deep", "--url", url)


def test_an_address_without_deep_is_refused(log: Path) -> None:
    with pytest.raises(StepscopeError, match="add --deep"):
        run("doctor", "--log", str(log), "--url", "http://127.0.0.1:8000")
