"""Requests that are going to come, and when: written down first, sent by `recording.Recording`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from engine.encoder_cache import EncoderItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that comes `at` seconds after the engine has started.

    The prompt's first `num_shared_tokens` are equal in all requests that name the same `shared`
    text; the rest is its own, and so are `num_tokens_in_front` of it. `blocked_seconds` is how long
    its grammar takes to compile (infinity: it never is there), `gone_after_seconds` when its client
    hangs up, `frontend_seconds` how long the server had it before the engine did. Times are in
    seconds; None is never, or not measured.
    """

    at: float = 0.0
    num_prompt_tokens: int = 256
    max_tokens: int = 64
    priority: int = 0
    shared: str | None = None
    num_shared_tokens: int = 0
    num_tokens_in_front: int = 0
    cache_salt: str | None = None
    adapter: str | None = None
    encoder_items: tuple[EncoderItem, ...] = ()
    grammar: str | None = None
    blocked_seconds: float = 0.0
    gone_after_seconds: float | None = None
    frontend_seconds: float | None = None


Make = Callable[[float], Call]
"""Makes the request that comes at a moment (seconds)."""


def poisson(random: Random, make: Make, *, rate: float, start: float, end: float) -> list[Call]:
    """Returns requests whose arrivals are independent of each other, `rate` a second."""
    calls, at = [], start
    while (at := at + random.expovariate(rate)) < end:
        calls.append(make(at))
    return calls


def burst(random: Random, make: Make, *, count: int, at: float, within: float = 0.2) -> list[Call]:
    """Returns requests that come almost at once, spread evenly over `within` seconds."""
    return [make(at + random.uniform(0, within)) for _ in range(count)]


def about(random: Random, middle: float, spread: float = 0.25) -> int:
    """Returns a length around the middle: evenly within that share of it, at least 1."""
    return max(1, round(middle * random.uniform(1 - spread, 1 + spread)))
