"""Requests with random prompts, and when they were under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from diagnose.window import Window
from engine.workload.client import RequestResult, send_request
from tests.whole_line.vllm.server import MODEL_NAME

NUM_BYTES = 256
"""Token ids below it are the tiny Llama's bytes."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of the log: from before the first request was sent until the last was answered."""

    start_ts: int
    end_ts: int
    results: Sequence[RequestResult]

    @property
    def window(self) -> Window:
        return Window(start_ts=self.start_ts, end_ts=self.end_ts)

    @property
    def where(self) -> str:
        """The stretch as a condition on `ts`."""
        return f"ts BETWEEN {self.start_ts} AND {self.end_ts}"


def completion(seed: int, num_prompt_tokens: int, max_tokens: int, **more: Any) -> Body:
    """Returns a request that makes exactly `max_tokens`; `more` is sent with it."""
    generator = np.random.default_rng(seed)
    return {
        "model": MODEL_NAME,
        "prompt": generator.integers(0, NUM_BYTES, num_prompt_tokens).tolist(),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }


def send(url: str, bodies: Sequence[Body], *, at_once: int | None = None) -> Stretch:
    """Sends requests, all together or `at_once` at most, and waits for every answer."""
    start_ts = time.time_ns()
    results = asyncio.run(post_all(url, bodies, at_once=at_once))
    return Stretch(start_ts=start_ts, end_ts=time.time_ns(), results=results)


async def post_all(
    url: str,
    bodies: Sequence[Body],
    *,
    at_once: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> list[RequestResult]:
    """Posts requests, all together or `at_once` at most, and returns how each went."""
    slots = asyncio.Semaphore(at_once or len(bodies))
    async with httpx.AsyncClient(
        base_url=url,
        headers=headers,
        limits=httpx.Limits(max_connections=None),
        timeout=httpx.Timeout(120.0, pool=None),
        trust_env=False,
    ) as http:

        async def post(body: Body) -> RequestResult:
            async with slots:
                return await send_request(http, body, num_prompt_tokens=len(body["prompt"]))

        return await asyncio.gather(*map(post, bodies))
