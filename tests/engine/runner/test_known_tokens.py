"""Tokens that do not come from sampling: a session's further input, and what a grammar forces.

The model's outputs equal those of a plain loop over all that is known.
"""

from __future__ import annotations

from transformers import LlamaForCausalLM

from engine.request import Request
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.session import Session, SessionInput
from tests.engine.runner.builders import engine_config, reference_tokens, run_step

PROMPT = [5, 17, 42, 8, 99, 23, 61, 4, 77, 12]
MORE = [31, 7, 64]


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)


def add(scheduler: Scheduler, max_tokens: int, *, session: Session | None = None) -> Request:
    request = Request("a", 0, PROMPT, greedy(max_tokens), session=session)
    scheduler.add_request(request)
    return request


def test_a_sessions_next_turn_goes_on_from_the_kv_of_the_last(
    small_model: LoadedModel, small_reference: LlamaForCausalLM
) -> None:
    config = engine_config()
    scheduler, runner = Scheduler(config), ModelRunner(small_model, config)
    session = add(scheduler, 4, session=Session())
    while session in scheduler.running or not session.num_output_tokens:
        run_step(scheduler, runner)
    said = list(session.token_ids[:-1])
    scheduler.add_session_input("a", SessionInput(MORE, 5, 1.0))
    output, _ = run_step(scheduler, runner)
    assert output.num_scheduled_tokens == {"a": len(MORE)}
    while session in scheduler.running:
        run_step(scheduler, runner)
    expected, _ = reference_tokens(small_reference, said + MORE, 5)
    assert list(session.token_ids[-5:]) == expected


def test_forced_tokens_are_computed_and_change_what_follows(
    small_model: LoadedModel, small_reference: LlamaForCausalLM
) -> None:
    config = engine_config(budget=4)
    scheduler, runner = Scheduler(config), ModelRunner(small_model, config)
    request = add(scheduler, 12)
    scheduler.append_known_tokens("a", MORE)
    while request.num_output_tokens < 6:
        run_step(scheduler, runner)
        scheduler.settle()
    scheduler.append_known_tokens("a", MORE[::-1])
    known = list(request.token_ids)
    while not request.is_finished:
        run_step(scheduler, runner)
    expected, _ = reference_tokens(small_reference, known, 3)
    assert list(request.token_ids[-3:]) == expected
    first, _ = reference_tokens(small_reference, PROMPT + MORE, 3)
    assert known[len(PROMPT + MORE) : len(PROMPT + MORE) + 3] == first
