"""What a service manager hears of a collector, in systemd's words."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.collector.supervisor import Supervisor
from tests.telemetry.collector.builders import RINGS


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A service manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(30.0)
        yield listener


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(tmp_path / "notify"), **more}


def test_it_says_that_it_is_ready(tmp_path: Path, manager: socket.socket) -> None:
    Supervisor(environment(tmp_path)).ready()
    assert manager.recv(100) == f"READY=1\nMAINPID={os.getpid()}".encode()


def test_it_reports_progress_to_a_watchdog(tmp_path: Path, manager: socket.socket) -> None:
    Supervisor(environment(tmp_path, WATCHDOG_USEC="60000000")).progress()
    assert manager.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}])
def test_it_reports_no_progress_where_none_is_awaited(
    tmp_path: Path, manager: socket.socket, more: dict[str, str]
) -> None:
    Supervisor(environment(tmp_path, **more)).progress()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_it_speaks_to_an_abstract_socket() -> None:
    name = f"stepscope-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        listener.settimeout(30.0)
        Supervisor({"NOTIFY_SOCKET": "@" + name}).ready()
        assert listener.recv(100).startswith(b"READY=1")


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_a_manager_that_does_not_listen_costs_nothing(environ: dict[str, str]) -> None:
    supervisor = Supervisor(environ | {"WATCHDOG_USEC": "1"})
    supervisor.ready()
    supervisor.progress()


def test_a_collector_gets_ready_and_gets_on(tmp_path: Path, manager: socket.socket) -> None:
    environ = environment(
        tmp_path, WATCHDOG_USEC="60000000", STEPSCOPE_RING_DIR=str(tmp_path / RINGS)
    )
    command = [sys.executable, "-m", "telemetry.collector", "--log", str(tmp_path / "log")]
    process = subprocess.Popen(command, env=os.environ | environ)
    try:
        assert manager.recv(100) == f"READY=1\nMAINPID={process.pid}".encode()
        assert [manager.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
    finally:
        process.terminate()
        process.wait(timeout=30)
