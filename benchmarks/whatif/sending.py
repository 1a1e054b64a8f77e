"""The clients of a run: they send its load over HTTP, when they would or in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx

from benchmarks.whatif.runs import BROUGHT_RATIO, Run
from engine.workload.client import send_request
from engine.workload.plan import PlannedRequest
from tests.whole_line.vllm.server import MODEL_NAME

VOCAB_SIZE = 256
TIMEOUT_SECONDS = 300.0


class PlayError(RuntimeError):
    """A run that was not played to its end, or may not be played now."""


async def send_all(url: str, run: Run) -> None:
    """Sends the load as the run's clients do, and waits for every answer.

    Raises:
        PlayError: some were not answered to their end.
    """
    plan = run.load.plan(run.seed)
    async with httpx.AsyncClient(
        base_url=url,
        limits=httpx.Limits(max_connections=None),
        timeout=httpx.Timeout(TIMEOUT_SECONDS, pool=None),
        trust_env=False,
    ) as http:
        if run.clients is None:
            sent = [_send_at(http, run, each) for each in plan]
        else:
            left = iter(plan)
            sent = [_send_in_turn(http, run, left) for _ in range(run.clients)]
        failures = [failure for part in await asyncio.gather(*sent) for failure in part]
    if failures:
        raise PlayError(f"{len(failures)} of {len(plan)} requests failed: {failures[:3]}")


async def _send_at(http: httpx.AsyncClient, run: Run, planned: PlannedRequest) -> list[str]:
    await asyncio.sleep(planned.offset_seconds)
    return await _send(http, run, planned)


async def _send_in_turn(
    http: httpx.AsyncClient, run: Run, left: Iterator[PlannedRequest]
) -> list[str]:
    failures: list[str] = []
    for planned in left:
        failures += await _send(http, run, planned)
    return failures


async def _send(http: httpx.AsyncClient, run: Run, planned: PlannedRequest) -> list[str]:
    num_prompt_tokens = planned.num_prompt_tokens
    body: dict[str, Any] = {
        "model": MODEL_NAME,
        "prompt": planned.token_ids(vocab_size=VOCAB_SIZE, seed=run.seed),
        "max_tokens": planned.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if planned.priority is not None:
        body["priority"] = planned.priority
    if run.engine == "vllm" and run.connector == "brings":
        body["kv_transfer_params"] = {
            "slow_tokens": int(num_prompt_tokens * BROUGHT_RATIO) // 32 * 32,
            "slow_seconds": run.load_seconds,
        }
    result = await send_request(http, body, num_prompt_tokens=num_prompt_tokens)
    return [] if result.failure is None else [result.failure]
