"""A served engine under real HTTP load: recorded by its collector, its page scraped meanwhile.

Nothing is replaced: `stepscope serve` in processes of its own, the tiny Llama, the ring, the log.
A run leaves two witnesses in its folder, each judged as if it were the only one:

    log/      what the collector wrote
    scrapes/  the page of `/metrics`, twice a second, and the launch flags: what an operator without
              a recorder has
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from random import Random
from typing import Any

import httpx

from benchmarks.provoking.importing import imported
from benchmarks.provoking.scenario import Attempt
from diagnose.reading import QueryLog
from engine.workload.client import send_request
from telemetry.collector import stop_collector
from telemetry.store import open_log
from tests.engine.server.server_process import children_of

MODEL = "tiny-llama"
NUM_BYTES = 256
"""Token ids below it are the tiny Llama's bytes."""
SCRAPE_SECONDS = 0.5
SETTLE_SECONDS = 180.0
"""How long an engine may take to come up, and its collector to write down the rest."""
STOP_SECONDS = 30.0
"""How long it may take to end."""

Body = dict[str, Any]
Serving = Callable[[Path, Sequence[str]], AbstractContextManager[str]]


class LiveRunError(RuntimeError):
    """An engine that did not come up, or requests that were not answered as they should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request: what its client does before it, and how long it waits before it hangs up.

    Times in seconds; None is for ever.
    """

    body: Body
    pause_seconds: float = 0.0
    patience_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Clients:
    """Calls, of which so many are under way at once: as the engine answers, so they go out.

    With `goes_on` they are sent over and over until all other groups are through.
    """

    calls: Sequence[Call]
    at_once: int
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What an engine is asked, by several groups of clients beside each other.

    With `rounds` above one the calls are sent so many times, and the prefix cache is emptied
    between. `may_fail`: whether calls may go unanswered.
    """

    clients: Sequence[Clients]
    rounds: int = 1
    may_fail: bool = False


Ask = Callable[[Sequence[Call]], Awaitable[float]]
"""Sends calls at once, and says how many seconds it took until all were answered."""
Choose = Callable[[Ask], Awaitable[Traffic]]
"""Chooses the traffic once the engine is up."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """Traffic that depends on how fast the engine is here: what one machine stalls at, another
    does in passing. `choose` is given the source of chance, the load, and what asks the engine.
    """

    choose: Callable[[Random, float, Ask], Awaitable[Traffic]]


# ------------------------------------------------------------------------------------ in processes


@contextlib.contextmanager
def serving_ours(folder: Path, flags: Sequence[str]) -> Iterator[str]:
    """Runs an engine and its collector, and yields its address; both end in order."""
    command = [sys.executable, "-m", "stepscope", "serve", "--port", "0"]
    environment = os.environ | {"STEPSCOPE_RING_DIR": str(folder / "rings")}
    said = folder / "serve.out"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--log", str(folder / "log"), *flags],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    try:
        _wait_until(lambda: process.poll() is not None or _url_in(said) is not None)
        url = _url_in(said)
        if url is None:
            raise LiveRunError(f"the engine ended before it was ready: {said.read_text()}")
        yield url
    finally:
        engines = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.kill()
        process.wait()
        for pid in engines:  # one whose step hangs does not end
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _url_in(said: Path) -> str | None:
    lines = said.read_text(errors="replace").splitlines()
    return next((x.removeprefix("ready at ").strip() for x in lines if x.startswith("ready")), None)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise LiveRunError(f"nothing came of it in {SETTLE_SECONDS:g} s")
        time.sleep(0.02)


# ------------------------------------------------------------------------------------------- a run


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """Flags of an engine, and what it is asked. `flags` may write files into the run's folder.

    `serving` runs the engine, recorded into `log` of the folder, and yields its address.
    """

    name: str
    flags: Callable[[Random, Path], Sequence[str]]
    traffic: Callable[[Random, float], Traffic] | Scaled
    serving: Serving = serving_ours

    def log(self, attempt: Attempt) -> QueryLog:
        """Returns the log that the collector wrote; runs the engine if nobody has yet."""
        return open_log(self._folder(attempt) / "log")

    def scrapes(self, attempt: Attempt) -> QueryLog:
        """Returns a log of the run's scrapes alone."""
        folder = self._folder(attempt)
        return imported("prometheus", folder / "scrapes", attempt.folder / "log")

    def _folder(self, attempt: Attempt) -> Path:
        """Returns the run's folder, beside the attempt's: both witnesses are of one run."""
        folder = attempt.folder.parent / f"live-{self.name}-{attempt.seed}-{attempt.load:g}"
        if not folder.exists():
            folder.mkdir()
            try:
                self._run(attempt, folder)
            except BaseException:
                shutil.rmtree(folder)  # half of a run is none
                raise
        return folder

    def _run(self, attempt: Attempt, folder: Path) -> None:
        random = attempt.random
        flags = self.flags(random, folder)
        (folder / "scrapes").mkdir()
        (folder / "scrapes" / "config.json").write_text(json.dumps(_settings_of(flags)))
        choose = self._choose(random, attempt.load)
        try:
            with self.serving(folder, flags) as url:
                asyncio.run(_play(url, choose, folder / "scrapes"))
            _wait_until(lambda: not list((folder / "rings").glob("*.ring")))
        finally:
            stop_collector(folder / "log")

    def _choose(self, random: Random, load: float) -> Choose:
        """Returns what chooses the traffic; what no speed changes is drawn now."""
        if isinstance(self.traffic, Scaled):
            return partial(self.traffic.choose, random, load)
        drawn = self.traffic(random, load)

        async def choose(ask: Ask) -> Traffic:
            return drawn

        return choose


def completion(random: Random, num_prompt_tokens: int, max_tokens: int, **more: Any) -> Body:
    """Returns a request with a random prompt that makes exactly `max_tokens`."""
    return {
        "model": MODEL,
        "prompt": [random.randrange(NUM_BYTES) for _ in range(num_prompt_tokens)],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }


def _settings_of(flags: Sequence[str]) -> dict[str, Any]:
    """Returns the numbers among the flags, as an operator would write them down."""
    return {
        name: int(value)
        for name, value in pairwise(flags)
        if name.startswith("--") and value.isdigit()
    }


def call_of(random: Random, num_prompt_tokens: int, max_tokens: int) -> Call:
    """Returns a call for exactly so many tokens."""
    return Call(body=completion(random, num_prompt_tokens, max_tokens))


# -------------------------------------------------------------------------------------- over HTTP


async def _play(url: str, choose: Choose, scrapes: Path) -> None:
    """Chooses the traffic, sends it and scrapes meanwhile."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=url, timeout=None, limits=limits, trust_env=False
    ) as http:
        traffic = await choose(partial(_ask, http))
        async with _scraping(http, scrapes):
            for number in range(traffic.rounds):
                if number:
                    await _empty_cache(http)
                failures = await _send_round(http, traffic.clients)
                if failures and not traffic.may_fail:
                    raise LiveRunError(f"{len(failures)} calls failed: {failures[:3]}")


async def _ask(http: httpx.AsyncClient, calls: Sequence[Call]) -> float:
    """Sends calls at once and returns how many seconds it took.

    Raises:
        LiveRunError: one was not answered.
    """
    started = time.perf_counter()
    failures = [each for each in await asyncio.gather(*(_send(http, x) for x in calls)) if each]
    if failures:
        raise LiveRunError(f"{len(failures)} calls failed: {failures[:3]}")
    return time.perf_counter() - started


async def _send_round(http: httpx.AsyncClient, groups: Sequence[Clients]) -> list[str]:
    """Sends the calls of all groups beside each other; returns why some were not answered."""
    failures: list[str] = []
    over = asyncio.Event()
    going_on = [
        asyncio.create_task(_send_all(http, _until(over, each.calls), each.at_once, failures))
        for each in groups
        if each.goes_on
    ]
    try:
        await asyncio.gather(
            *(
                _send_all(http, iter(each.calls), each.at_once, failures)
                for each in groups
                if not each.goes_on
            )
        )
    finally:
        over.set()
        await asyncio.gather(*going_on)
    return failures


def _until(over: asyncio.Event, calls: Sequence[Call]) -> Iterator[Call]:
    """Yields the calls over and over until it is over."""
    for call in cycle(calls):
        if over.is_set():
            return
        yield call


async def _empty_cache(http: httpx.AsyncClient) -> None:
    """Empties the prefix cache, which takes until nobody holds a block any more."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not (await http.post("/reset_prefix_cache")).raise_for_status().json()["success"]:
        if time.monotonic() > deadline:
            raise LiveRunError("the prefix cache cannot be emptied: somebody holds blocks for good")
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _scraping(http: httpx.AsyncClient, folder: Path) -> AsyncIterator[None]:
    """Saves the page again and again, and once more at the end; a page that fails is none."""

    async def save() -> None:
        page = await http.get("/metrics")
        if page.is_success:
            (folder / f"metrics_{time.time():.3f}.prom").write_text(page.text)

    async def save_often() -> None:
        while True:
            await save()
            await asyncio.sleep(SCRAPE_SECONDS)

    task = asyncio.create_task(save_often())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await save()


async def _send_all(
    http: httpx.AsyncClient, calls: Iterator[Call], at_once: int, failures: list[str]
) -> None:
    """Sends calls, and adds why one was not answered to `failures`."""

    async def one_client() -> None:
        for call in calls:
            await asyncio.sleep(call.pause_seconds)
            failure = await _send(http, call)
            if failure is not None:
                failures.append(failure)

    await asyncio.gather(*(one_client() for _ in range(at_once)))


async def _send(http: httpx.AsyncClient, call: Call) -> str | None:
    """Sends a call; returns why it was not answered, unless its client had hung up."""
    num_prompt_tokens = len(call.body["prompt"])
    asking = asyncio.ensure_future(
        send_request(http, call.body, num_prompt_tokens=num_prompt_tokens)
    )
    done, _ = await asyncio.wait([asking], timeout=call.patience_seconds)
    if done:
        return asking.result().failure
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    return None
