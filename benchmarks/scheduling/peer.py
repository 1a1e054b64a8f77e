"""The two ways to run a course: in this process, or in vLLM's Python beside it."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from benchmarks.scheduling.course import Block, Course, Side
from benchmarks.scheduling.workloads import Workload

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}
"""vLLM's settings: quiet, offline, and the runner whose scheduler output ours has too."""


class PeerError(RuntimeError):
    """The other Python cannot go on; what it said is on standard error."""


class Peer(Protocol):
    """A scheduler somewhere, and one course at a time."""

    name: str

    def open(self, workload: Workload) -> int:
        """Begins a workload; returns the checksum of its warm-up's decisions."""

    def measure(self) -> Block:
        """Runs one block of it."""

    def close(self) -> None:
        """Ends the workload."""


class LocalPeer:
    """A scheduler in this process."""

    def __init__(self, name: str, make_side: Callable[[Workload], Side]) -> None:
        self.name = name
        self._make_side = make_side
        self._course: Course

    def open(self, workload: Workload) -> int:
        self._course = Course(workload, self._make_side)
        return self._course.warm_up()

    def measure(self) -> Block:
        return self._course.measure()

    def close(self) -> None:
        del self._course
        gc.collect()


class VllmPeer:
    """vLLM's scheduler in the Python that has it.

    Raises:
        PeerError: it does not start, or ends in the middle.
    """

    def __init__(self, python: Path) -> None:
        program = shutil.which(python)
        if program is None:
            raise PeerError(
                f"--vllm-python is {python}, and no such program can be started: "
                "name the Python of an environment with vLLM"
            )
        self._python = python
        self._process = subprocess.Popen(
            [os.path.abspath(program), "-m", "benchmarks.scheduling.serving"],
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = f"vLLM {self._reply()['version']}"

    def open(self, workload: Workload) -> int:
        return self._ask(do="open", workload=asdict(workload))["checksum"]

    def measure(self) -> Block:
        return Block(**self._ask(do="measure")["block"])

    def close(self) -> None:
        self._ask(do="close")

    def leave(self) -> None:
        """Ends the other process."""
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, **command: object) -> dict[str, Any]:
        with suppress(BrokenPipeError):  # the missing reply says it
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            self.leave()
            raise PeerError(
                f"{self._python} ended with status {self._process.returncode} and no answer: "
                "see its words above, and whether vLLM can be imported there"
            )
        return json.loads(line)
