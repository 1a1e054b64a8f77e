"""Sends a whole plan against an API and waits for every answer.

Open loop: each request goes out at its own time, whatever became of those before, so an engine that
falls behind is not spared. Closed loop: at most `concurrency` at once, in plan order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from engine.workload.client import RequestResult, ServedModel, find_model, send_request
from engine.workload.plan import PlannedRequest, WorkloadError
from engine.workload.report import LoadReport

Progress = Callable[[int, int, int], None]
"""Called with how many requests were sent, answered and failed so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How a plan is sent.

    `timeout_seconds` is the longest silence of one request's connection before it counts as
    failed. `vocab_size` bounds the token ids; None asks `/v1/models`.
    """

    model: str | None = None
    vocab_size: int | None = None
    concurrency: int | None = None
    seed: int = 0
    timeout_seconds: float = 300.0
    ignore_eos: bool = True

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise WorkloadError(f"--concurrency is {self.concurrency}: it must be 1 or more")
        if self.seed < 0:
            raise WorkloadError(f"--seed is {self.seed}: it must be 0 or more")
        if self.vocab_size is not None and self.vocab_size < 1:
            raise WorkloadError(f"--vocab is {self.vocab_size}: it must be 1 or more")
        if not self.timeout_seconds > 0:
            raise WorkloadError(f"--timeout is {self.timeout_seconds}: it must be above 0 seconds")


async def replay(
    url: str,
    plan: Sequence[PlannedRequest],
    options: ReplayOptions,
    progress: Progress = lambda sent, answered, failed: None,
) -> LoadReport:
    """Sends the plan to the API at `url` and returns what came back.

    Raises:
        WorkloadError: the API cannot be reached, or does not say what its vocabulary is.
    """
    async with _connect(url, options.timeout_seconds) as http:
        model = await _ask_for_model(http, url, options)
        run = _Run(http, model, options, progress)
        started = time.perf_counter()
        if options.concurrency is None:
            results = await run.open_loop(plan)
        else:
            results = await run.closed_loop(plan, options.concurrency)
        return LoadReport.of(results, duration_seconds=time.perf_counter() - started)


def _connect(url: str, timeout_seconds: float) -> httpx.AsyncClient:
    try:
        return httpx.AsyncClient(
            base_url=url,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            timeout=httpx.Timeout(timeout_seconds, pool=None),
            trust_env=False,
        )
    except httpx.InvalidURL as error:
        raise WorkloadError(
            f"--url is {url!r}: {error}; write it like http://127.0.0.1:8000"
        ) from None


async def _ask_for_model(http: httpx.AsyncClient, url: str, options: ReplayOptions) -> ServedModel:
    try:
        model = await find_model(http, options.model)
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, ValueError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
        raise WorkloadError(
            f"{url} does not answer as an OpenAI API: {reason}; "
            "start one with `stepscope serve`, or correct --url"
        ) from None
    vocab_size = options.vocab_size or model.vocab_size
    if vocab_size is None:
        raise WorkloadError(
            f"{url} does not tell the vocabulary of {model.name}: give its size with --vocab"
        )
    return replace(model, vocab_size=vocab_size)


class _Run:
    """One replay: counts what is sent and what came back."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        model: ServedModel,
        options: ReplayOptions,
        progress: Progress,
    ) -> None:
        self._http = http
        self._model = model
        self._options = options
        self._progress = progress
        self._num_sent = 0
        self._num_answered = 0
        self._num_failed = 0

    async def open_loop(self, plan: Sequence[PlannedRequest]) -> list[RequestResult]:
        """Sends each request at its own time."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        tasks = []
        async with asyncio.TaskGroup() as group:
            for request in plan:
                body = self._body(request)
                due = started + request.offset_seconds
                await asyncio.sleep(max(0.0, due - loop.time()))
                lateness_seconds = max(0.0, loop.time() - due)
                tasks.append(group.create_task(self._send(request, body, lateness_seconds)))
        return [task.result() for task in tasks]

    async def closed_loop(
        self, plan: Sequence[PlannedRequest], concurrency: int
    ) -> list[RequestResult]:
        """Keeps up to `concurrency` requests under way."""
        slots = asyncio.Semaphore(concurrency)

        async def in_a_slot(request: PlannedRequest) -> RequestResult:
            async with slots:
                return await self._send(request, self._body(request), 0.0)

        return list(await asyncio.gather(*(in_a_slot(request) for request in plan)))

    def _body(self, request: PlannedRequest) -> dict[str, Any]:
        assert self._model.vocab_size is not None
        body: dict[str, Any] = {
            "model": self._model.name,
            "prompt": request.token_ids(vocab_size=self._model.vocab_size, seed=self._options.seed),
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": self._options.ignore_eos,
        }
        if request.priority is not None:
            body["priority"] = request.priority
        return body

    async def _send(
        self, request: PlannedRequest, body: dict[str, Any], lateness_seconds: float
    ) -> RequestResult:
        self._num_sent += 1
        self._tell()
        result = await send_request(self._http, body, num_prompt_tokens=request.num_prompt_tokens)
        result.lateness_seconds = lateness_seconds
        if result.failure is None:
            self._num_answered += 1
        else:
            self._num_failed += 1
        self._tell()
        return result

    def _tell(self) -> None:
        self._progress(self._num_sent, self._num_answered, self._num_failed)
