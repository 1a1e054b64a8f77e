"""How requests end in the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from telemetry.vocabulary import FinishReason, SkipReason
from tests.engine.builders import Run
from tests.engine.reasons.stage import stage


def stop() -> Run:
    play = stage()
    request = play.run.add("a", max_tokens=9, eos_token_id=7)
    request.sampling = replace(request.sampling, ignore_eos=False)
    play.step()
    return play.run


def length() -> Run:
    play = stage()
    play.run.add("a", max_tokens=1)
    play.step()
    return play.run


def from_outside(reason: FinishReason) -> Run:
    play = stage()
    play.run.add("a", max_tokens=9)
    play.step()
    play.run.scheduler.finish_requests(["a"], reason)
    return play.run


def error() -> Run:
    play = stage()
    play.run.add("a", blocked_by=SkipReason.grammar_compiling)
    play.run.scheduler.unblock("a", SkipReason.grammar_failed)
    play.step()
    return play.run


SCENARIOS: dict[FinishReason, Callable[[], Run]] = {
    FinishReason.stop: stop,
    FinishReason.length: length,
    FinishReason.abort_client: partial(from_outside, FinishReason.abort_client),
    FinishReason.abort_api: partial(from_outside, FinishReason.abort_api),
    FinishReason.abort_timeout: partial(from_outside, FinishReason.abort_timeout),
    FinishReason.error: error,
}
MADE_ELSEWHERE: dict[FinishReason, str] = {FinishReason.refused: "engine/core.py"}
"""What the scheduler cannot say, and the file that says it: who is refused was never queued."""
