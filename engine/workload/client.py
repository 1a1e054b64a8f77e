"""Sends one request as a stream and times what comes back.

Works with any OpenAI-compatible `/v1/completions`. A request counts as answered only when its
stream said why it finished and was closed in order; everything else is a failure with a reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

ANSWERED = ("length", "stop")
"""Finish reasons of a request that was answered to its end."""


NO_ROOM = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
"""Statuses of an API that wants to be asked again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What `/v1/models` says of the model; None where the API does not tell."""

    name: str
    max_model_len: int | None = None
    vocab_size: int | None = None


@dataclass(slots=True, kw_only=True)
class RequestResult:
    """What became of one request. Times are seconds; None where it did not get that far.

    `itl_seconds` are the gaps between the chunks of the stream that carried tokens. `failure` is
    None for a request that was answered to its end. `is_refused`: the API had no room for it.
    """

    num_prompt_tokens: int
    num_output_tokens: int = 0
    lateness_seconds: float = 0.0
    """How much later than planned it was sent: the load generator's own delay."""
    ttft_seconds: float | None = None
    e2e_seconds: float | None = None
    itl_seconds: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    failure: str | None = None
    is_refused: bool = False


async def find_model(http: httpx.AsyncClient, name: str | None) -> ServedModel:
    """Returns the served model of that name, or the first.

    Raises:
        httpx.HTTPError: the API cannot be asked.
        LookupError: it serves no such model.
    """
    response = await http.get("/v1/models")
    response.raise_for_status()
    cards = {card["id"]: card for card in response.json()["data"]}
    if not cards or (name is not None and name not in cards):
        served = ", ".join(cards) or "none"
        raise LookupError(f"model {name or '(any)'!r} is not served: {served}")
    card = cards[name] if name is not None else next(iter(cards.values()))
    return ServedModel(
        name=card["id"],
        max_model_len=card.get("max_model_len"),
        vocab_size=card.get("vocab_size"),
    )


async def send_request(
    http: httpx.AsyncClient, body: dict[str, Any], *, num_prompt_tokens: int
) -> RequestResult:
    """Posts `body` as a stream and returns how it went; never raises for what the API does."""
    result = RequestResult(num_prompt_tokens=num_prompt_tokens)
    started = time.perf_counter()
    try:
        async with http.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                result.is_refused = response.status_code in NO_ROOM
                result.failure = f"HTTP {response.status_code}: {_error_text(response.text)}"
            else:
                await _follow(response, result, started)
    except httpx.TimeoutException as error:
        result.failure = f"timed out ({type(error).__name__})"
    except httpx.HTTPError as error:
        result.failure = f"connection failed: {str(error) or type(error).__name__}"
    except (ValueError, KeyError, TypeError) as error:
        result.failure = f"the stream is not what the OpenAI API sends: {error}"
    return result


async def _follow(response: httpx.Response, result: RequestResult, started: float) -> None:
    """Reads the stream to its end, noting when tokens came."""
    previous = started
    num_chunks = 0
    closed = False
    async for payload in _events(response):
        now = time.perf_counter()
        if payload is None:
            closed = True
            break
        if "error" in payload:
            result.failure = f"error in the stream: {_message(payload['error'])}"
            return
        for choice in payload.get("choices", ()):
            result.finish_reason = choice.get("finish_reason") or result.finish_reason
            num_chunks += 1
            if result.ttft_seconds is None:
                result.ttft_seconds = now - started
            else:
                result.itl_seconds.append(now - previous)
            previous = now
            result.e2e_seconds = now - started
        if payload.get("usage"):
            result.num_output_tokens = payload["usage"]["completion_tokens"]
    result.num_output_tokens = result.num_output_tokens or num_chunks
    if not closed or result.finish_reason is None:
        result.failure = "the stream ended before the request did"
    elif result.finish_reason not in ANSWERED:
        result.failure = f"finished with {result.finish_reason!r}"


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any] | None]:
    """Yields the JSON of each server-sent event; None for the closing one."""
    async for line in _lines(response):
        if line.startswith(b"data:"):
            data = line[5:].strip()
            yield None if data == b"[DONE]" else json.loads(data)


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yields lines as the standard ends them; httpx would also cut at U+0085 and U+2028."""
    rest = b""
    async for data in response.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line


def _error_text(text: str) -> str:
    """Returns the message of an OpenAI error body, else the body's beginning."""
    try:
        return _message(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)
