"""A real server as a child process, and what one can see of it from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

SECONDS = 30.0
"""How long anything may take before a test gives up."""


@dataclass
class ServerProcess:
    """A server that has said it is ready."""

    process: subprocess.Popen[str]
    url: str

    @property
    def engine_pid(self) -> int:
        """The process of the step loop."""
        return next(
            pid for pid in children_of(self.process.pid) if b"spawn_main" in command_of(pid)
        )

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=SECONDS, trust_env=False)

    def metric(self, name: str) -> float:
        """Returns the value of a series, named as on the page but for its first two labels."""
        with self.client() as http:
            page = http.get("/metrics").raise_for_status().text
        bare = page.replace('engine="0",', "").replace('model_name="tiny-llama"', "")
        bare = bare.replace("{}", "").replace("{,", "{").replace(",}", "}").replace(",,", ",")
        for line in bare.splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"{name} is not on the page:\n{page}")


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[ServerProcess]:
    """Runs `serve --no-record` on a free port; ends it and what it started."""
    process = launch(*flags)
    engines: list[int] = []
    try:
        server = ServerProcess(process, read_url(process))
        engines = children_of(process.pid)
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        wait_until(lambda: not any(is_running(pid) for pid in engines))
        assert process.stdout is not None
        process.stdout.close()


def launch(*flags: str) -> subprocess.Popen[str]:
    """Starts `serve --no-record` on a free port."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepscope", "serve", "--no-record", "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_url(process: subprocess.Popen[str]) -> str:
    """Reads what the server says until it is ready."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("ready at "):
            return line.removeprefix("ready at ").strip()
    raise AssertionError("the server ended before it was ready:\n" + "".join(said))


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"nothing came of it in {seconds} s"
        time.sleep(0.01)


def children_of(parent: int) -> list[int]:
    """Returns the living children of a process."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                children.append(int(stat.parent.name))
    return children


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def is_running(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
