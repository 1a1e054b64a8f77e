"""Servers to ask: ours and vLLM, up for as long as they are compared.

Both get the same flags, the same model directory and one thread. What computes (our engine process;
vLLM's engine core and worker) has the first processor core, the API and the client have the others:
unpinned, a busy engine starves whoever reads its answers, and latencies mean nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from benchmarks.serving.loads import Load
from benchmarks.serving.measuring import Round, cpu_seconds, round_of
from tests.whole_line.vllm.load import post_all
from tests.whole_line.vllm.processes import descendants_of, pin_threads, title_of
from tests.whole_line.vllm.server import MODEL_NAME, serving, stop

READY = "ready at "
ENGINE_PROCESS = "spawn_main"
"""How the title of our engine process tells it from those beside it."""

ONE_THREAD = {"OMP_NUM_THREADS": "1"}


class Side(Protocol):
    """An engine that can be given a load."""

    @property
    def name(self) -> str: ...

    def play(self, load: Load, seed: int) -> Round:
        """Runs a round; with the same seed every side gets the same prompts."""
        ...

    def outputs(self, load: Load, seed: int) -> list[list[int]]:
        """Returns the tokens of the round's requests, which come all at once or in turns."""
        ...


@dataclass(frozen=True, slots=True)
class ServerSide:
    """A server with an OpenAI-compatible API."""

    name: str
    url: str
    pid: int

    def play(self, load: Load, seed: int) -> Round:
        """Sends a round's requests as streams, as many at a time as the load says."""
        more = {"stream": True, "stream_options": {"include_usage": True}}
        bodies = [load.body(MODEL_NAME, prompt) | more for prompt in load.prompts(seed)]
        pids = [self.pid, *descendants_of(self.pid)]
        cpu, began = cpu_seconds(pids), time.perf_counter()
        results = asyncio.run(post_all(self.url, bodies, at_once=load.concurrency))
        took = time.perf_counter() - began
        return round_of(results, seconds=took, cpu_seconds=cpu_seconds(pids) - cpu, side=self.name)

    def outputs(self, load: Load, seed: int) -> list[list[int]]:
        """Returns what a round's requests give."""
        return asyncio.run(self._outputs(load, seed))

    async def _outputs(self, load: Load, seed: int) -> list[list[int]]:
        slots = asyncio.Semaphore(load.concurrency)
        async with httpx.AsyncClient(base_url=self.url, timeout=600, trust_env=False) as http:

            async def post(prompt: Sequence[int]) -> list[int]:
                body = load.body(MODEL_NAME, prompt) | {"return_token_ids": True}
                async with slots:
                    answer = await http.post("/v1/completions", json=body)
                token_ids: list[int] = answer.raise_for_status().json()["choices"][0]["token_ids"]
                return token_ids

            return await asyncio.gather(*map(post, load.prompts(seed)))


@contextlib.contextmanager
def our_side(model: Path, flags: Sequence[str]) -> Iterator[ServerSide]:
    """Runs `stepscope serve` without a record, as vLLM keeps none; ends it."""
    command = [sys.executable, "-m", "stepscope", "serve", str(model), "--no-record"]
    command += ["--port", "0", "--served-model-name", MODEL_NAME, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **ONE_THREAD})
    assert process.stdout is not None
    try:
        said = (line.decode() for line in process.stdout)
        url = next((line.removeprefix(READY).strip() for line in said if READY in line), None)
        if url is None:
            raise RuntimeError("our engine ended before it was ready: its words stand above")
        share_the_cores(process.pid, (ENGINE_PROCESS,))
        yield ServerSide("ours", url, process.pid)
    finally:
        stop(process)
        process.stdout.close()


@contextlib.contextmanager
def vllm_side(
    python: Path, model: Path, flags: Sequence[str], *, compiled: bool, folder: Path
) -> Iterator[ServerSide]:
    """Runs a stock vLLM; ends it.

    Args:
        compiled: with torch.compile, its default; else operation by operation.
        folder: where it runs and what it prints lies.
    """
    more = ["--no-enforce-eager"] if compiled else []
    with serving(python, model, folder / "vllm.log", [*flags, *more], ONE_THREAD) as server:
        name = "vLLM, compiled" if compiled else "vLLM"
        yield ServerSide(name, server.url, server.process.pid)


def share_the_cores(pid: int, computing: Sequence[str]) -> None:
    """Gives the first core to the processes that compute, the others to the rest."""
    cores = sorted(os.sched_getaffinity(0))
    for each in (pid, *descendants_of(pid)):
        computes = any(name in title_of(each) for name in computing)
        pin_threads(each, set(cores[:1] if computes else cores[1:] or cores))


@contextlib.contextmanager
def client_beside() -> Iterator[None]:
    """Keeps this process off the first core meanwhile: the engines compute there."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(cores)[1:]) or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
