"""Asynchronous scheduling: steps that are decided before the last one's outputs are known."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler import ModelRunnerOutput, SchedulerOutput
from telemetry.records import RequestFinished, RequestPreempted
from telemetry.vocabulary import EventKind, ZeroReason
from tests.engine.builders import Run, config


def drive(run: Run, limit: int = 4000) -> list[SchedulerOutput]:
    """Runs two steps deep to the end, asking the scheduler itself which prefills go on."""
    in_flight: deque[tuple[SchedulerOutput, set[str]]] = deque()
    outputs = []
    while run.scheduler.has_requests() or in_flight:
        if run.scheduler.has_requests():
            output = run.scheduler.schedule()
            outputs.append(output)
            chunks = {
                name
                for name in output.num_scheduled_tokens
                if run.scheduler.requests[name].is_prefill_chunk
            }
            in_flight.append((output, chunks))
        if len(in_flight) == 2 or not run.scheduler.has_requests():
            output, chunks = in_flight.popleft()
            sampled = {name: [7] for name in output.num_scheduled_tokens if name not in chunks}
            run.results += run.scheduler.update_from_output(
                output, ModelRunnerOutput(sampled_token_ids=sampled)
            )
        run.scheduler.check_integrity()
        assert len(outputs) < limit, "the run does not end"
    return outputs


def tokens_of(run: Run) -> Counter[str]:
    tokens: Counter[str] = Counter()
    for result in run.results:
        tokens[result.request_id] += len(result.new_token_ids)
    return tokens


def test_a_step_is_decided_before_the_token_of_the_last_is_known() -> None:
    run = Run(config(async_scheduling=True))
    request = run.add("a", max_tokens=5)
    run.scheduler.schedule()
    assert run.scheduler.schedule().num_scheduled_tokens == {"a": 1}
    assert request.num_output_placeholders == 2


def test_a_request_whose_last_token_is_on_its_way_is_not_scheduled_again() -> None:
    run = Run(config(async_scheduling=True))
    run.add("a", prompt=4, max_tokens=1)
    first = run.scheduler.schedule()
    second = run.scheduler.schedule()
    assert second.num_scheduled_tokens == {}
    for output, sampled in ((first, {"a": [7]}), (second, {})):
        run.scheduler.update_from_output(output, ModelRunnerOutput(sampled_token_ids=sampled))
    drive(run)
    reasons = [
        reason
        for _, dense in run.recorder.step_requests
        if dense.zero_reason is not None
        for reason in dense.zero_reason
    ]
    assert ZeroReason.max_tokens_in_flight in reasons


def test_a_token_that_was_on_its_way_is_delivered_after_the_eviction() -> None:
    run = Run(config(async_scheduling=True, num_usable_blocks=6, enable_prefix_caching=False))
    for name in "abc":
        run.add(name, prompt=8, max_tokens=6)
    drive(run)
    preempted = run.events(RequestPreempted)
    assert any(event.num_in_flight_tokens for event in preempted)
    assert tokens_of(run) == {"a": 6, "b": 6, "c": 6}


def test_a_row_names_how_many_steps_are_in_flight() -> None:
    run = Run(config(async_scheduling=True))
    run.add("a", max_tokens=6)
    drive(run)
    assert max(row.num_steps_in_flight or 0 for row in run.recorder.steps) == 2
    assert [row.step for row in run.recorder.steps] == sorted(
        row.step for row in run.recorder.steps
    )


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["fcfs", "priority"]),
    st.integers(10, 24),
    st.lists(
        st.tuples(st.integers(1, 12), st.integers(1, 8), st.integers(0, 2)),
        min_size=1,
        max_size=8,
    ),
)
def test_every_request_gets_all_its_tokens_and_one_end(
    policy: str, num_blocks: int, requests: list[tuple[int, int, int]]
) -> None:
    run = Run(
        config(
            async_scheduling=True,
            policy=policy,
            num_usable_blocks=num_blocks,
            max_num_batched_tokens=16,
        )
    )
    for number, (prompt, max_tokens, priority) in enumerate(requests):
        run.add(f"r{number}", prompt=prompt, max_tokens=max_tokens, priority=priority)
    drive(run)
    assert tokens_of(run) == {f"r{n}": request[1] for n, request in enumerate(requests)}
    ends = Counter(event.request for event in run.events(RequestFinished))
    assert set(ends.values()) == {1}
    assert run.scheduler.kv.pool.num_free == num_blocks
    kinds = [event.kind for event in run.recorder.events]
    assert kinds.count(EventKind.preempted) == run.scheduler.num_preemptions


@pytest.mark.parametrize("array_path", [True, False])
def test_a_block_that_the_token_in_flight_fills_is_a_hit_after_an_eviction(
    array_path: bool,
) -> None:
    settings_ = config(
        num_usable_blocks=10,
        block_size=2,
        policy="priority",
        max_num_batched_tokens=2,
        async_scheduling=True,
    )
    run = Run(settings_, array_path=array_path)
    run.add("a", prompt=2, max_tokens=10, arrival_time=0.0)
    run.add("b", prompt=1, max_tokens=9, arrival_time=0.0)  # a tie: the first in the list goes
    outputs = drive(run)
    hits = [output.num_prefix_hit_tokens for output in outputs if output.num_prefix_hit_tokens]
    assert run.scheduler.num_preemptions == 1
    assert hits[-1] == {"a": 10}


@pytest.mark.parametrize("array_path", [True, False])
def test_a_block_is_a_hit_though_its_last_step_was_the_last_in_flight(array_path: bool) -> None:
    run = Run(config(async_scheduling=True), array_path=array_path)
    first = run.add("a", prompt=2, max_tokens=20)
    outputs = deque([run.scheduler.schedule()])
    for step in range(1, 8):
        if step < 7:
            outputs.append(run.scheduler.schedule())
        sampled = ModelRunnerOutput(sampled_token_ids={"a": [7]})
        run.scheduler.update_from_output(outputs.popleft(), sampled)
    run.scheduler.settle()
    assert first.num_computed_tokens == 8
    run.add("b", prompt=[*first.token_ids[:8], 5])
    assert run.scheduler.schedule().scheduled_new_reqs[0].num_computed_tokens == 8
