"""Jump decoding: tokens that are known without being sampled, and how their request catches up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.session import Session
from telemetry.records import TokensAppended
from telemetry.vocabulary import FinishReason, SkipReason
from tests.engine.builders import Run, config
from tests.engine.in_flight import InFlight


def test_a_running_request_catches_up_in_one_grant() -> None:
    run = Run(config())
    request = run.add("a", prompt=4, max_tokens=9)
    run.step()
    run.scheduler.append_known_tokens("a", [21, 22, 23])
    output = run.step()
    assert output.num_scheduled_tokens == {"a": 4}
    assert list(request.output_token_ids) == [7, 21, 22, 23, 7]


def test_the_budget_cuts_the_catching_up_like_any_chunk() -> None:
    run = Run(config(max_num_batched_tokens=4))
    run.add("a", prompt=4, max_tokens=20)
    run.step()
    run.scheduler.append_known_tokens("a", [21] * 6)
    assert [run.step().num_scheduled_tokens["a"] for _ in range(3)] == [4, 3, 1]


def test_the_runner_is_told_once() -> None:
    run = Run(config())
    run.add("a", prompt=4, max_tokens=9)
    run.step()
    run.scheduler.append_known_tokens("a", [21, 22])
    told = [run.step().scheduled_cached_reqs[0] for _ in range(2)]
    assert [cached.new_token_ids for cached in told] == [(21, 22), ()]
    assert [cached.num_output_tokens for cached in told] == [3, 4]


def test_a_waiting_request_may_begin_with_known_tokens() -> None:
    run = Run(config())
    request = run.add("a", prompt=4, max_tokens=9)
    run.scheduler.append_known_tokens("a", [21, 22])
    (new,) = run.step().scheduled_new_reqs
    assert (list(new.prompt_token_ids), new.output_token_ids) == ([*range(1000, 1004)], (21, 22))
    assert list(request.output_token_ids) == [21, 22, 7]


def test_a_preempted_request_computes_the_known_tokens_when_it_resumes() -> None:
    run = Run(config(num_usable_blocks=4, enable_prefix_caching=False))
    run.add("a", prompt=8, max_tokens=6)
    victim = run.add("b", prompt=7, max_tokens=9)
    run.steps(2)
    run.scheduler.append_known_tokens("b", [21, 22])
    while victim.num_preemptions == 0:
        run.step()
    run.scheduler.append_known_tokens("b", [23])
    known = list(victim.token_ids)
    while not victim.num_computed_tokens:
        output = run.step()
    (resumed,) = [c for c in output.scheduled_cached_reqs if c.resumed]
    assert list(resumed.all_token_ids or ()) == known
    assert resumed.new_token_ids == ()
    run.to_the_end()
    assert victim.num_output_tokens == 9


def test_full_blocks_of_known_tokens_can_be_hit() -> None:
    run = Run(config(block_size=4))
    run.add("a", prompt=[1, 2, 3, 4], max_tokens=9)
    run.step()
    run.scheduler.append_known_tokens("a", [21, 22, 23])
    run.step()
    run.add("b", prompt=[1, 2, 3, 4, 7, 21, 22, 23, 99])
    assert run.step().num_prefix_hit_tokens == {"b": 8}


@pytest.mark.parametrize(
    ("limits", "appended", "kept", "reason"),
    [
        ({"max_tokens": 3}, [21, 22, 23], (21, 22), FinishReason.length),
        ({"max_tokens": 9, "eos_token_id": 22}, [21, 22, 23], (21, 22), FinishReason.stop),
        ({"max_tokens": 9}, [21, 22], (21, 22), None),
    ],
)
def test_what_ends_a_request_ends_it_here_too(
    limits: dict[str, int], appended: list[int], kept: tuple[int, ...], reason: FinishReason | None
) -> None:
    run = Run(config())
    request = run.add("a", prompt=4, **limits)
    request.sampling = replace(request.sampling, ignore_eos=False)
    run.step()
    result = run.scheduler.append_known_tokens("a", appended)
    assert (result.new_token_ids, result.finish_reason) == (kept, reason)
    run.scheduler.check_integrity()
    assert request.is_finished is (reason is not None)
    if reason is not None:
        assert run.scheduler.kv.pool.num_free == run.scheduler.kv.pool.num_usable
        assert run.step().finished_req_ids == {"a"}


def test_the_model_length_counts_them() -> None:
    run = Run(config(max_model_len=8, max_num_batched_tokens=8))
    run.add("a", prompt=4, max_tokens=99)
    run.step()
    result = run.scheduler.append_known_tokens("a", [21] * 9)
    assert (len(result.new_token_ids), result.finish_reason) == (3, FinishReason.length)


def test_drafts_are_dropped_for_what_is_known() -> None:
    run = Run(config())
    request = run.add("a", prompt=4, max_tokens=9)
    run.step()
    run.scheduler.update_draft_token_ids({"a": [30, 31]})
    run.scheduler.append_known_tokens("a", [21])
    assert request.draft_token_ids == []


def test_the_record_says_how_many_and_not_which() -> None:
    run = Run(config())
    run.add("a", prompt=4, max_tokens=9)
    run.step()
    run.scheduler.append_known_tokens("a", [21, 22])
    (event,) = run.events(TokensAppended)
    assert (event.request, event.num_tokens, event.text) == (0, 2, None)


def test_a_token_on_its_way_comes_first() -> None:
    run = Run(config(async_scheduling=True))
    run.add("a", prompt=4, max_tokens=9)
    flight = InFlight(run, 2)
    flight.schedule()
    with pytest.raises(ValueError, match="'a' has a token on its way"):
        run.scheduler.append_known_tokens("a", [21])
    flight.take_in()
    run.scheduler.append_known_tokens("a", [21])
    assert flight.schedule().num_scheduled_tokens == {"a": 2}


def test_strangers_and_sessions_are_refused() -> None:
    run = Run(config())
    run.add("s", session=Session())
    with pytest.raises(ValueError, match="'s' is a session"):
        run.scheduler.append_known_tokens("s", [21])
    with pytest.raises(ValueError, match="'x' is not here"):
        run.scheduler.append_known_tokens("x", [21])


def test_a_request_that_waits_for_its_grammar_may_be_given_tokens() -> None:
    run = Run(config())
    run.add("a", prompt=4, max_tokens=9, blocked_by=SkipReason.grammar_compiling)
    run.scheduler.append_known_tokens("a", [21])
    run.scheduler.unblock("a")
    assert run.step().num_scheduled_tokens == {"a": 5}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(6, 12),
    st.lists(st.tuples(st.integers(1, 8), st.integers(2, 9)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=20),
)
def test_every_request_gets_its_tokens_whatever_jumps(
    num_blocks: int, requests: list[tuple[int, int]], jumps: list[tuple[int, int]]
) -> None:
    run = Run(config(num_usable_blocks=num_blocks, max_num_batched_tokens=6))
    added = [
        run.add(f"r{n}", prompt=prompt, max_tokens=max_tokens)
        for n, (prompt, max_tokens) in enumerate(requests)
    ]
    for number, count in jumps:
        if f"r{number}" in run.scheduler.requests:
            run.scheduler.append_known_tokens(f"r{number}", [21] * count)
            run.scheduler.check_integrity()
        run.step()
    run.to_the_end()
    assert [r.num_output_tokens for r in added] == [max_tokens for _, max_tokens in requests]
    assert run.scheduler.kv.pool.num_free == num_blocks
