"""A request's end, as the record has it."""

from __future__ import annotations

from typing import Any

from telemetry.records import RequestFinished
from telemetry.sources.vllm.lives import Life
from telemetry.vocabulary import FinishReason, SkipReason

REASONS: dict[str, FinishReason] = {
    "FINISHED_STOPPED": FinishReason.stop,
    "FINISHED_REPETITION": FinishReason.stop,
    "FINISHED_LENGTH_CAPPED": FinishReason.length,
    "FINISHED_ABORTED": FinishReason.abort_client,
    "FINISHED_IGNORED": FinishReason.refused,
    "FINISHED_ERROR": FinishReason.error,
}
"""vLLM's final statuses in the record's words.

vLLM does not tell a client that went away from a caller that cancelled; both are `abort_client`.
"""


def reason_of(status: Any, *, ends_all: bool = False) -> FinishReason:
    """Returns why a request with a final status ended.

    Args:
        ends_all: whether the server ends all its requests at once.
    """
    reason = REASONS.get(status.name, FinishReason.error)
    return FinishReason.abort_api if ends_all and reason is FinishReason.abort_client else reason


def ending(life: Life, reason: FinishReason, now: int) -> RequestFinished:
    """Returns the event of a request's end, without step and prefix hashes."""
    request = life.request
    preempted_ns = life.preempted_ns
    if life.preempted_ts is not None:
        preempted_ns += now - life.preempted_ts
    load_ns = life.load_ns
    if life.load_since is not None:
        load_ns = (load_ns or 0) + now - life.load_since
    decode_ns = _between(life.first_token_ts, life.last_token_ts)
    num_gaps = request.num_output_tokens - 1
    return RequestFinished(
        ts=now,
        request=life.number,
        reason=reason,
        text=_error_text(life) if reason is FinishReason.error else None,
        num_output_tokens=request.num_output_tokens,
        num_computed_tokens=request.num_computed_tokens,
        num_preemptions=request.num_preemptions,
        queue_ns=_between(life.arrived_ts, life.admitted_ts),
        prefill_ns=_between(life.admitted_ts, life.first_token_ts),
        decode_ns=decode_ns,
        preempted_ns=preempted_ns,
        load_ns=load_ns,
        mean_itl_ns=decode_ns // num_gaps if decode_ns is not None and num_gaps > 0 else None,
        max_itl_ns=life.max_itl_ns,
        drafts_placed=life.drafts_placed or None,
        drafts_accepted=life.drafts_accepted or None,
    )


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


def _error_text(life: Life) -> str | None:
    if life.skipped_for is SkipReason.grammar_failed:
        return "the grammar could not be compiled"
    if life.has_lost_load:
        return "its KV could not be loaded"
    return None
