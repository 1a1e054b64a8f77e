"""`vllm serve` on a free port, from its start until all of its processes have ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.vllm_venv import cache_dir
from tests.whole_line.vllm.processes import descendants_of, is_running, pin_threads, title_of

START_SECONDS = 240.0
"""How long a start may take: 20 to 30 seconds on two idle cores."""

STOP_SECONDS = 30.0
MODEL_NAME = "tiny-llama"
SPINNING = ("VLLM::EngineCore", "VLLM::Worker")
"""Processes that spin while they are busy, by how their titles begin."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
}
FLAGS = (
    *("--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--dtype", "bfloat16"),
    *("--enforce-eager", "--seed", "0", "--block-size", "32"),
)
"""The block size must be a multiple of 32 on a CPU."""


class ServerError(RuntimeError):
    """A server that did not come up or did not do what it was asked; its last words are told."""


@dataclass(frozen=True, slots=True)
class VllmServer:
    """A server that answers."""

    process: subprocess.Popen[bytes]
    url: str
    output: Path

    def metric(self, name: str) -> float:
        """Returns the sum of a metric over its label sets, as its page says it now.

        Raises:
            LookupError: it is not on the page.
        """
        page = httpx.get(f"{self.url}/metrics", trust_env=False, timeout=60).text
        values = [
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith((f"{name}{{", f"{name} "))
        ]
        if not values:
            raise LookupError(f"{self.url}/metrics has no {name}")
        return sum(values)

    def is_idle(self) -> bool:
        """Whether no request runs or waits, as its page says."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        return not any(self.metric(name) for name in names)

    def last_words(self) -> str:
        """Returns the end of what it printed."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-40:])


@contextlib.contextmanager
def serving(
    python: Path, model: Path, output: Path, flags: Sequence[str], environment: Mapping[str, str]
) -> Iterator[VllmServer]:
    """Runs a server with `flags` besides the usual ones; ends it and all that it started.

    Args:
        output: the file for what it prints. It runs in that file's folder: a checkout as working
            folder would come before the installed plug-in.
        environment: added to the usual settings; nothing of Stepscope's is inherited.
    """
    port = free_port()
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += ["--port", str(port), *FLAGS, *flags]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("STEPSCOPE_", "PYTHON"))}
    settings = {"VLLM_CACHE_ROOT": str(cache_dir() / "vllm-cache"), **ENVIRONMENT, **environment}
    with output.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=output.parent,
            env=inherited | settings,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    server = VllmServer(process, f"http://127.0.0.1:{port}", output)
    try:
        wait_until_it_answers(server)
        share_the_cores(server)
        yield server
    finally:
        stop(process)


def free_port() -> int:
    """Returns a port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_it_answers(server: VllmServer) -> None:
    """Waits for a server that starts.

    Raises:
        ServerError: it ended, or took too long.
    """

    def answers() -> bool:
        if server.process.poll() is not None:
            raise ServerError(f"vLLM ended before it was ready:\n{server.last_words()}")
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{server.url}/health", trust_env=False).status_code == httpx.codes.OK
        return False

    try:
        wait_until(answers, START_SECONDS)
    except TimeoutError as error:
        raise ServerError(f"vLLM is not ready: {error}\n{server.last_words()}") from None


def share_the_cores(server: VllmServer) -> None:
    """Gives the first core to what spins and the others to the API, where there is more than one.

    The engine and its worker would leave the API no time to send what they have made.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return
    for pid in (server.process.pid, *descendants_of(server.process.pid)):
        is_spinning = title_of(pid).startswith(SPINNING)
        pin_threads(pid, {cores[0]} if is_spinning else set(cores[1:]))


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server as an operator would, and what is left of it after that by force."""
    started = descendants_of(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not any(is_running(pid) for pid in started), STOP_SECONDS)
    for pid in (pid for pid in started if is_running(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Polls until a condition holds.

    Raises:
        TimeoutError: it does not in that time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it in {seconds:g} s")
        time.sleep(0.05)
