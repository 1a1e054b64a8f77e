"""Callers of a soaked engine: most read their answers, others hang up or are ended meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import httpx

from benchmarks.soaking.features import Body, Feature, make_malformed_request, make_request

Fate = Literal["read", "hang up", "abort", "malformed"]
FATES: dict[Fate, int] = {"read": 70, "hang up": 14, "abort": 8, "malformed": 8}
"""What becomes of a request, and how often."""

TIMEOUT_SECONDS = 120.0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a caller saw of one request.

    `status` is None and `finish_reasons` empty where it hung up; `error` is what should not be.
    """

    request_id: str
    feature: str
    fate: Fate
    num_choices: int
    status: int | None = None
    finish_reasons: list[str] = field(default_factory=list)
    error: str | None = None
    has_stop_strings: bool = False

    @property
    def engine_ids(self) -> list[str]:
        """The ids under which the engine knows of its choices."""
        if self.num_choices == 1:
            return [self.request_id]
        return [f"{self.request_id}-{index}" for index in range(self.num_choices)]


@dataclass(slots=True)
class Callers:
    """So many callers at once, each asking again after a pause, until they are told to stop."""

    url: str
    table: Sequence[Feature]
    random: Random
    num_at_once: int
    pause_seconds: float
    outcomes: list[Outcome] = field(default_factory=list)
    _num_asked: int = 0

    async def ask_for(self, seconds: float) -> None:
        """Asks for so long, and returns when the last answer has come."""
        until = asyncio.get_running_loop().time() + seconds
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self.url, timeout=TIMEOUT_SECONDS, limits=limits, trust_env=False
        ) as http:
            await asyncio.gather(*(self._caller(http, until) for _ in range(self.num_at_once)))

    async def _caller(self, http: httpx.AsyncClient, until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await self._ask(http)
            await asyncio.sleep(self.random.expovariate(1 / self.pause_seconds))

    async def _ask(self, http: httpx.AsyncClient) -> None:
        random = self.random
        (fate,) = random.choices(list(FATES), list(FATES.values()))
        weights = [feature.weight for feature in self.table]
        (feature,) = random.choices(self.table, weights)
        path, body = (
            make_malformed_request(random) if fate == "malformed" else make_request(random, feature)
        )
        outcome = Outcome(
            request_id=f"soak-{self._num_asked}",
            feature="malformed" if fate == "malformed" else feature.name,
            fate=fate,
            num_choices=body.get("n", 1) or 1,
            has_stop_strings="stop" in body,
        )
        self._num_asked += 1
        self.outcomes.append(outcome)
        patience = random.expovariate(1 / 0.3) if fate in ("hang up", "abort") else None
        asking = asyncio.ensure_future(_send(http, path, body, outcome))
        if patience is not None:
            await asyncio.wait([asking], timeout=patience)
            if fate == "abort":
                await _abort(http, outcome.request_id)
            else:
                asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def _abort(http: httpx.AsyncClient, request_id: str) -> None:
    answer = await http.post("/abort_requests", json={"request_ids": [request_id]})
    answer.raise_for_status()


async def _send(http: httpx.AsyncClient, path: str, body: Body, outcome: Outcome) -> None:
    """Sends a request and notes what comes back."""
    headers = {"x-request-id": outcome.request_id}
    try:
        async with http.stream("POST", path, json=body, headers=headers) as response:
            if response.status_code == httpx.codes.OK and body.get("stream"):
                await _read_stream(response, outcome)
            else:
                _take_in(json.loads(await response.aread()), outcome)
            outcome.status = response.status_code
    except (httpx.HTTPError, ValueError) as error:
        outcome.error = f"{type(error).__name__}: {error}"


async def _read_stream(response: httpx.Response, outcome: Outcome) -> None:
    closed = False
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            closed = True
        elif line.startswith("data: "):
            _take_in(json.loads(line.removeprefix("data: ")), outcome)
    if not closed:
        outcome.error = "the stream was not closed in order"


def _take_in(answer: dict[str, Any], outcome: Outcome) -> None:
    if "error" in answer:
        outcome.error = str(answer["error"]["message"])
    reasons = [choice["finish_reason"] for choice in answer.get("choices", ())]
    outcome.finish_reasons += [reason for reason in reasons if reason is not None]
