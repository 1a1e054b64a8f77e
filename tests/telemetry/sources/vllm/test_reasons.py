"""Each reason that vLLM's scheduler can have for leaving somebody out is told where it holds."""

from __future__ import annotations

import pytest

from telemetry.vocabulary import EventKind, SkipReason, StopReason, ZeroReason
from tests.telemetry.sources.vllm.conftest import Lab

HEADS: dict[StopReason, int | None] = {
    StopReason.queue_empty: None,
    StopReason.preempted_this_step: None,
    StopReason.paused_all: None,
    StopReason.paused_new: 0,
    StopReason.loaded_needs_blocks: 0,
    StopReason.prefill_lookahead: 0,
}
"""Who is the head; elsewhere it is the second request."""
BLOCKS_NEEDED: dict[StopReason, int] = {
    StopReason.kv_blocks_chunk: 2,
    StopReason.kv_blocks_whole_prompt: 3,
    StopReason.kv_watermark: 4,
    StopReason.kv_reserved_for_loads: 8,
    StopReason.loaded_needs_blocks: 1,
}
SKIPPED: dict[SkipReason, int] = {SkipReason.lora_slots: 1, SkipReason.stale_output: 1}
"""Who is set aside; elsewhere it is the first request."""


@pytest.mark.parametrize("reason", StopReason)
def test_why_admission_ended(lab: Lab, reason: StopReason) -> None:
    row = lab.runs.situations[reason.name].steps[-1]
    assert StopReason(row.stop_reason or 0) is reason
    assert row.head_request == HEADS.get(reason, 1)
    assert row.head_blocks_needed == BLOCKS_NEEDED.get(reason)


@pytest.mark.parametrize("reason", SkipReason)
def test_why_a_request_was_set_aside(lab: Lab, reason: SkipReason) -> None:
    events = lab.runs.situations[reason.name].events
    skips = [event for event in events if event.kind == EventKind.skipped]
    assert SkipReason(skips[-1].reason or 0) is reason
    assert skips[-1].request == SKIPPED.get(reason, 0)


@pytest.mark.parametrize("reason", ZeroReason)
def test_why_a_running_request_got_nothing(lab: Lab, reason: ZeroReason) -> None:
    recorder = lab.runs.situations[f"zero_{reason.name}"]
    step, dense = recorder.step_requests[-1]
    assert step == recorder.steps[-1].step
    assert dense.num_scheduled_tokens is not None
    assert dense.zero_reason is not None
    given = zip(dense.zero_reason.tolist(), dense.num_scheduled_tokens.tolist(), strict=True)
    assert {ZeroReason(code) for code, num in given if not num} == {reason}


def test_a_failed_grammar_says_what_kind_of_error_it_is_and_no_more(lab: Lab) -> None:
    events = lab.runs.situations["grammar_failed"].events
    (failed,) = (event for event in events if event.kind == EventKind.grammar_failed)
    assert failed.text == "ValueError"
    assert not any("SECRET" in (event.text or "") for event in events)


def test_no_situation_breaks_the_recorder(lab: Lab) -> None:
    assert all(not recorder.errors for recorder in lab.runs.situations.values())
