"""Pipelines: as many steps in flight as stages, and a decode every so many steps."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import ConfigError, SchedulerConfig
from telemetry.records import RequestFinished
from telemetry.vocabulary import SkipReason, ZeroReason
from tests.engine.builders import Run, config
from tests.engine.in_flight import InFlight


def decode_steps(flight: InFlight, name: str) -> list[int]:
    return [o.step for o in flight.to_the_end() if name in o.num_scheduled_tokens]


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("pp_size", [2, 3])
def test_a_request_decodes_every_pp_size_steps(pp_size: int, async_scheduling: bool) -> None:
    run = Run(config(pp_size=pp_size, async_scheduling=async_scheduling))
    run.add("a", prompt=4, max_tokens=4)
    steps = decode_steps(InFlight(run, pp_size), "a")
    assert steps == [pp_size * n for n in range(4)]


def test_chunks_of_a_prompt_follow_each_other() -> None:
    run = Run(config(pp_size=3, max_num_batched_tokens=4))
    run.add("a", prompt=12, max_tokens=2)
    assert decode_steps(InFlight(run, 3), "a") == [0, 1, 2, 5]


def test_who_is_in_the_pipeline_is_passed_over_and_the_scan_goes_on() -> None:
    run = Run(config(pp_size=2))
    run.add("a", max_tokens=3)
    flight = InFlight(run, 2)
    flight.schedule()
    run.add("b", max_tokens=3)
    assert list(flight.schedule().num_scheduled_tokens) == ["b"]
    flight.take_in()
    assert list(flight.schedule().num_scheduled_tokens) == ["a"]
    flight.to_the_end()
    assert ZeroReason.pipeline_cadence in flight.zero_reasons


def test_the_cadence_holds_where_the_token_came_early() -> None:
    run = Run(config(pp_size=2))
    run.add("a", max_tokens=3)
    run.step()
    assert run.step().num_scheduled_tokens == {}
    assert run.step().num_scheduled_tokens == {"a": 1}


def test_one_stage_changes_nothing() -> None:
    run = Run(config(pp_size=1))
    run.add("a", max_tokens=4)
    assert [run.step().num_scheduled_tokens for _ in range(4)] == [{"a": 4}] + [{"a": 1}] * 3


def test_a_victim_waits_for_the_token_that_it_had_on_its_way() -> None:
    run = Run(config(pp_size=3, num_usable_blocks=2))
    run.add("a", prompt=4, max_tokens=2)
    flight = InFlight(run, 3)
    flight.schedule()
    flight.schedule()
    victim = run.add("b", prompt=4, max_tokens=2)
    flight.schedule()
    flight.take_in()
    assert flight.schedule().preempted_in_order == ("b",)
    flight.take_in()
    flight.schedule()
    assert victim.skipped_for is SkipReason.stale_output
    flight.take_in()
    assert victim.num_output_tokens == 1
    flight.to_the_end()
    assert victim.num_output_tokens == 2


def test_no_stage_is_refused() -> None:
    with pytest.raises(ConfigError, match="pp_size is 0"):
        SchedulerConfig(pp_size=0)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 4),
    st.booleans(),
    st.sampled_from(["fcfs", "priority"]),
    st.integers(8, 20),
    st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2)),
        min_size=1,
        max_size=8,
    ),
)
def test_every_request_gets_all_its_tokens_and_one_end(
    pp_size: int,
    async_scheduling: bool,
    policy: str,
    num_blocks: int,
    requests: list[tuple[int, int, int]],
) -> None:
    run = Run(
        config(
            pp_size=pp_size,
            async_scheduling=async_scheduling,
            policy=policy,
            num_usable_blocks=num_blocks,
            max_num_batched_tokens=16,
        )
    )
    for number, (prompt, max_tokens, priority) in enumerate(requests):
        run.add(f"r{number}", prompt=prompt, max_tokens=max_tokens, priority=priority)
    flight = InFlight(run, pp_size)
    flight.to_the_end()
    tokens: Counter[str] = Counter()
    for result in run.results:
        tokens[result.request_id] += len(result.new_token_ids)
    assert tokens == {f"r{n}": request[1] for n, request in enumerate(requests)}
    ends = Counter(event.request for event in run.events(RequestFinished))
    assert set(ends.values()) == {1}
    assert run.scheduler.kv.pool.num_free == num_blocks
