"""Asynchronous scheduling: a step is decided before the outputs of the one before are known.

A request that is going to have an output gets placeholders for it, and for its drafts; they count
as known until the output comes. What was on its way when a request lost its progress is stale: a
token is still delivered after an eviction, and dropped where the request starts over from outside.
"""

from __future__ import annotations

from engine.config import EngineConfig
from engine.request import Request, StaleOutput
from engine.scheduler.pipeline_cadence import enter_pipeline
from engine.scheduler.plan import Grant
from engine.scheduler.speculation import PLACEHOLDER


def expect_output(grant: Grant, step: int, config: EngineConfig) -> None:
    """Notes that a step is on its way; its progress has been counted already."""
    request = grant.request
    request.in_flight[step] = grant.num_tokens
    if request.is_prefill_chunk:
        return
    enter_pipeline(request, step, config.scheduler.pp_size)
    if config.scheduler.async_scheduling:
        request.num_output_placeholders += 1 + len(grant.drafts)
        request.draft_token_ids = [PLACEHOLDER] * config.speculation.num_speculative_tokens


def reaches_its_end(request: Request) -> bool:
    """Whether a step in flight is certain to bring the last token that the request may have."""
    placeholders = request.num_output_placeholders
    if placeholders == 0:
        return False
    end = request.num_prompt_tokens + request.sampling.max_tokens
    return request.num_computed_tokens + 2 - placeholders >= end


def awaits_stale_output(request: Request) -> bool:
    """Whether a token from before its loss is on its way and will be delivered.

    Admitted now, the request would compute the same position again. With two steps in flight the
    token always comes first; with more, as in a pipeline, it need not.
    """
    return any(request.stale.get(step) is StaleOutput.DELIVERED for step in request.in_flight)


def make_stale(request: Request, fate: StaleOutput) -> None:
    """Says what becomes of all that is on its way; nothing is expected any more."""
    request.num_output_placeholders = 0
    for step in request.in_flight:
        request.stale[step] = fate
