"""Hybrid block alignment: chunks of prompts end on a multiple, or are not given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import CacheConfig, ConfigError, EncoderConfig, EngineConfig, SchedulerConfig
from engine.encoder_cache import EncoderItem
from telemetry.vocabulary import FinishReason, StopReason, ZeroReason
from tests.engine.builders import Run, config


def aligned_run(alignment: int = 8, **fields: object) -> Run:
    settings_ = config(**fields)
    return Run(replace(settings_, cache=replace(settings_.cache, chunk_alignment=alignment)))


def test_a_chunk_ends_on_a_multiple_and_the_last_one_where_the_prompt_does() -> None:
    run = aligned_run(max_num_batched_tokens=12)
    run.add("a", prompt=21)
    chunks = [run.step().num_scheduled_tokens["a"] for _ in range(4)]
    assert chunks == [8, 8, 5, 1]


def test_a_waiting_prompt_that_does_not_reach_a_multiple_stops_admission() -> None:
    run = aligned_run(max_num_batched_tokens=12)
    run.add("a", prompt=8)
    run.add("b", prompt=21)
    assert run.step().num_scheduled_tokens == {"a": 8}
    assert run.last_step.stop_reason == StopReason.block_alignment
    assert run.last_step.head_request == 1


def test_a_running_prompt_that_does_not_reach_a_multiple_gets_nothing() -> None:
    run = aligned_run(max_num_batched_tokens=9)
    run.add("a", prompt=4, max_tokens=9)
    run.add("b", prompt=3, max_tokens=9)
    run.step()
    run.add("long", prompt=30)
    run.step()
    assert list(run.step().num_scheduled_tokens) == ["a", "b"]
    run.scheduler.finish_requests(["b"], FinishReason.abort_client)
    assert run.step().num_scheduled_tokens == {"a": 1, "long": 8}
    run.scheduler.append_known_tokens("a", [21])
    assert run.step().num_scheduled_tokens == {"a": 2}
    _, dense = run.recorder.step_requests[-1]
    assert dense.zero_reason is not None
    assert dense.zero_reason[-1] == ZeroReason.block_alignment


def test_a_decode_with_drafts_is_not_cut() -> None:
    run = aligned_run(max_num_batched_tokens=12)
    run.add("a", prompt=4, max_tokens=9)
    run.step()
    run.scheduler.update_draft_token_ids({"a": [7, 7]})
    assert run.scheduler.schedule().num_scheduled_tokens == {"a": 3}


def test_a_resumed_request_is_cut_like_a_prompt() -> None:
    run = aligned_run(max_num_batched_tokens=12, enable_prefix_caching=False)
    run.add("a", prompt=11, max_tokens=9)
    run.steps(5)
    run.scheduler.reset_prefix_cache(reset_running=True)
    assert run.step().num_scheduled_tokens == {"a": 8}


def test_items_behind_the_cut_are_not_encoded() -> None:
    run = aligned_run(max_num_batched_tokens=12)
    settings_ = replace(run.config, encoder=EncoderConfig(compute_budget=8, cache_size=8))
    run = Run(settings_)
    run.add("a", prompt=20, encoder_items=(EncoderItem("i", 9, 4),))
    assert run.step().scheduled_encoder_inputs == {}
    assert run.step().scheduled_encoder_inputs == {"a": [0]}


@pytest.mark.parametrize(
    ("cache", "scheduler", "problem"),
    [
        ({"chunk_alignment": 10, "block_size": 4}, {}, "multiple of block_size"),
        ({"chunk_alignment": 0, "block_size": 4}, {}, "multiple of block_size"),
        (
            {"chunk_alignment": 16, "block_size": 4},
            {"max_num_batched_tokens": 12},
            "max_num_scheduled_tokens 12",
        ),
        (
            {"chunk_alignment": 16, "block_size": 4},
            {"long_prefill_token_threshold": 8},
            "long_prefill_token_threshold 8",
        ),
    ],
)
def test_settings_under_which_no_chunk_fits_are_refused(
    cache: dict[str, int], scheduler: dict[str, int], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        EngineConfig(cache=CacheConfig(**cache), scheduler=SchedulerConfig(**scheduler))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([4, 8, 12]),
    st.integers(12, 30),
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
)
def test_every_chunk_of_every_run_is_aligned(
    alignment: int, budget: int, prompts: list[int]
) -> None:
    run = aligned_run(alignment, max_num_batched_tokens=budget, num_usable_blocks=60)
    for number, prompt in enumerate(prompts):
        run.add(f"r{number}", prompt=prompt, max_tokens=3)
    while run.scheduler.has_requests():
        run.step()
        for request in run.scheduler.running:
            if request.num_computed_tokens < request.num_prompt_tokens:
                assert request.num_computed_tokens % alignment == 0
