"""Streaming sessions: turns, what is kept between them, and how a session ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import SpeculationConfig
from engine.request import Request
from engine.scheduler import ModelRunnerOutput
from engine.session import Session, SessionInput
from telemetry.records import RequestFinished
from telemetry.vocabulary import EventKind, FinishReason, SkipReason
from tests.engine.builders import Run, config

PIECE = SessionInput([90, 91, 92], max_tokens=2, arrival_time=50.0)


def opened(**fields: object) -> tuple[Run, Request]:
    run = Run(config(**fields))
    return run, run.add("s", prompt=4, max_tokens=2, session=Session())


def step(run: Run) -> None:
    """Runs a step whose every request that reaches its newest token gets token 7."""
    output = run.scheduler.schedule()
    sampled = {
        name: [7]
        for name in output.num_scheduled_tokens
        if not run.scheduler.requests[name].is_prefill_chunk
    }
    run.results += run.scheduler.update_from_output(
        output, ModelRunnerOutput(sampled_token_ids=sampled)
    )
    run.scheduler.check_integrity()


def finish_turn(run: Run) -> None:
    for _ in range(2):
        step(run)


def test_between_turns_a_session_keeps_its_blocks_and_waits() -> None:
    run, session = opened()
    finish_turn(run)
    assert run.results[-1].is_turn
    assert run.scheduler.kv.num_blocks_held(session) > 0
    assert list(run.scheduler.kv_holding_waiting) == [session]
    assert session.skipped_for is SkipReason.streaming_input


def test_the_next_piece_drops_the_token_that_was_never_computed() -> None:
    run, session = opened()
    finish_turn(run)
    assert session.num_tokens == 6
    assert session.num_computed_tokens == 5
    run.scheduler.add_session_input("s", PIECE)
    assert list(session.token_ids[5:]) == [90, 91, 92]
    assert session.num_prompt_tokens == 8
    output = run.scheduler.schedule()
    assert output.num_scheduled_tokens == {"s": 3}
    assert output.scheduled_new_reqs[0].num_computed_tokens == 5


def test_a_piece_that_comes_during_a_turn_is_taken_up_after_it() -> None:
    run, session = opened()
    step(run)
    run.scheduler.add_session_input("s", PIECE)
    assert session.num_prompt_tokens == 4
    step(run)
    assert session.num_prompt_tokens == 8
    assert session.blocked_by is None


def test_a_session_between_turns_keeps_its_slot() -> None:
    run, _ = opened(max_num_seqs=1)
    run.add("other")
    finish_turn(run)
    step(run)
    assert "other" not in {request.request_id for request in run.scheduler.running}


@pytest.mark.parametrize("during_a_turn", [True, False])
def test_a_closed_session_ends_once(during_a_turn: bool) -> None:
    run, _ = opened()
    if during_a_turn:
        run.scheduler.close_session("s")
    finish_turn(run)
    if not during_a_turn:
        run.scheduler.close_session("s")
    assert not run.scheduler.requests
    ends = [event.reason for event in run.events(RequestFinished)]
    assert ends == [FinishReason.length if during_a_turn else FinishReason.stop]


def test_turns_and_pieces_are_recorded() -> None:
    run, _ = opened()
    finish_turn(run)
    run.scheduler.add_session_input("s", PIECE)
    kinds = [event.kind for event in run.recorder.events]
    assert kinds.count(EventKind.turn_finished) == kinds.count(EventKind.input_added) == 1


def test_input_for_a_request_that_is_no_session_is_refused() -> None:
    run = Run(config())
    run.add("a")
    with pytest.raises(ValueError, match="'a' is no open session"):
        run.scheduler.add_session_input("a", PIECE)


def pipelined(run: Run, count: int) -> None:
    """Decides `count` steps before it takes in what each brought; every output is token 7."""
    outputs = [run.scheduler.schedule() for _ in range(count)]
    for output in outputs:
        sampled = {name: [7] for name in output.num_scheduled_tokens}
        run.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids=sampled))
        run.scheduler.check_integrity()


def test_drafts_that_were_expected_end_with_the_turn() -> None:
    settings = config(async_scheduling=True)
    run = Run(replace(settings, speculation=SpeculationConfig(num_speculative_tokens=2)))
    session = run.add("s", prompt=4, max_tokens=2, session=Session())
    pipelined(run, 2)
    assert session.skipped_for is SkipReason.streaming_input
    assert session.draft_token_ids == []


def test_a_session_queues_by_the_arrival_of_the_piece_that_it_goes_on_with() -> None:
    run, first = opened(policy="priority")
    second = run.add("t", prompt=4, max_tokens=2, session=Session())
    run.scheduler.add_session_input("s", PIECE)
    run.scheduler.add_session_input("t", replace(PIECE, arrival_time=20.0))
    finish_turn(run)
    assert list(run.scheduler.kv_holding_waiting) == [second, first]


def test_who_heads_the_queue_stays_there_though_its_admission_is_stopped() -> None:
    run, first = opened(policy="priority")
    run.add("t", prompt=4, max_tokens=2, session=Session())
    run.add("c", prompt=4, max_tokens=9)
    finish_turn(run)
    run.scheduler.add_session_input("s", PIECE)
    run.scheduler.add_session_input("t", replace(PIECE, arrival_time=20.0))
    output = run.scheduler.schedule(throttle_prefills=True)
    assert list(output.num_scheduled_tokens) == ["c"]
    assert run.scheduler.kv_holding_waiting.peek() is first
