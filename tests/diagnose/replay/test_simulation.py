"""A load that is scheduled again comes out as it did; under other settings, otherwise."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from benchmarks.provoking.connector import SimulatedConnector
from benchmarks.provoking.recording import Recording
from benchmarks.provoking.traffic import Call
from diagnose.replay import (
    Outcome,
    Workload,
    scaled,
    simulate,
    with_clients,
    with_connector_latency,
    with_requests,
    with_settings,
    without,
)
from engine.config import KVConnectorConfig, SpeculationConfig
from tests.diagnose.replay.loads import closed_loop, recording, settings, storm, workload_of

PRESSED = settings()


@pytest.fixture(scope="module")
def pressed_run() -> Recording:
    return recording(PRESSED, storm(Random(7)))


@pytest.fixture(scope="module")
def pressed(pressed_run: Recording) -> Workload:
    return workload_of(pressed_run)


def test_the_recorded_settings_give_the_recorded_preemptions(
    pressed: Workload, pressed_run: Recording
) -> None:
    recorded = pressed_run.scheduler.num_preemptions
    assert recorded > 50
    assert simulate(pressed).num_preemptions == pytest.approx(recorded, rel=0.05)


@pytest.mark.parametrize(
    "quantity", ["queue_p95", "ttft_p95", "itl_p50", "itl_p95", "output_tokens_per_second"]
)
def test_the_recorded_settings_give_the_recorded_times(pressed: Workload, quantity: str) -> None:
    recorded = pressed.recorded.value(quantity)
    assert recorded
    assert simulate(pressed).measures.value(quantity) == pytest.approx(recorded, rel=0.1)


def test_what_was_recorded_is_what_the_engine_counted(
    pressed: Workload, pressed_run: Recording
) -> None:
    assert pressed.recorded.num_preemptions == pressed_run.scheduler.num_preemptions


def test_the_same_seed_gives_the_same_outcome_and_another_seed_another(pressed: Workload) -> None:
    first, again = simulate(pressed, seed=3), simulate(pressed, seed=3)
    assert first.preemptions == again.preemptions
    assert first.measures == again.measures
    assert simulate(pressed, seed=4).measures != first.measures


def test_every_request_ends(pressed: Workload) -> None:
    outcome = simulate(pressed)
    assert (outcome.num_finished, outcome.num_unfinished) == (pressed.num_requests, 0)
    assert outcome.num_output_tokens == sum(r.num_output_tokens for r in pressed.requests)


def test_a_pool_that_holds_all_preempts_nobody(pressed: Workload) -> None:
    assert simulate(with_settings(pressed, num_gpu_blocks=4000)).num_preemptions == 0


def test_fewer_slots_preempt_less_and_wait_longer(pressed: Workload) -> None:
    recorded, fewer = simulate(pressed), simulate(with_settings(pressed, max_num_seqs=6))
    assert fewer.num_preemptions < recorded.num_preemptions / 2
    assert fewer.measures.queue_p95 is not None
    assert recorded.measures.queue_p95 is not None
    assert fewer.measures.queue_p95 > recorded.measures.queue_p95


def test_a_preemption_says_whose_when_and_why(pressed: Workload) -> None:
    outcome = simulate(pressed)
    numbers = {request.number for request in pressed.requests}
    assert {each.request for each in outcome.preemptions} <= numbers
    times = [each.ts_ns for each in outcome.preemptions]
    assert times == sorted(times)
    assert times[-1] <= outcome.duration_ns
    assert outcome.by_cause == {"kv_full": outcome.num_preemptions}


def test_lost_tokens_are_at_least_those_computed_again(pressed: Workload) -> None:
    outcome = simulate(pressed)
    assert 0 < outcome.num_tokens_recomputed <= outcome.num_tokens_lost


def test_recomputed_tokens_are_those_of_the_record(pressed: Workload) -> None:
    recorded = pressed.recorded.num_tokens_recomputed
    assert recorded
    assert simulate(pressed).num_tokens_recomputed == pytest.approx(recorded, rel=0.1)


def test_without_half_of_the_requests_there_is_room(pressed: Workload) -> None:
    half = without(pressed, lambda request: request.number % 2 == 0)
    assert half.num_requests == pressed.num_requests // 2
    assert simulate(half).num_preemptions < simulate(pressed).num_preemptions / 2


def test_shorter_requests_fit(pressed: Workload) -> None:
    shorter = [replace(request, num_output_tokens=8) for request in pressed.requests]
    assert simulate(with_requests(pressed, shorter)).num_preemptions == 0


def test_requests_that_come_slower_wait_less(pressed: Workload) -> None:
    slower = simulate(scaled(pressed, 0.2))
    assert slower.num_preemptions < simulate(pressed).num_preemptions
    assert slower.duration_ns > 4 * pressed.requests[-1].arrived_ns


def test_a_replay_can_be_cut_short(pressed: Workload) -> None:
    cut = simulate(pressed, max_steps=50)
    assert (cut.num_steps, cut.is_cut) == (50, True)
    assert cut.num_unfinished > 0


# ------------------------------------------------------------------------------------ other traffic


def agrees(outcome: Outcome, engine: Recording) -> bool:
    """Whether the preemptions are those of the run, within 5 %."""
    return outcome.num_preemptions == pytest.approx(engine.scheduler.num_preemptions, rel=0.05)


def share_computed_again(outcome: Outcome) -> float:
    return outcome.num_tokens_recomputed / outcome.num_tokens_lost


def test_asynchronous_scheduling_is_replayed() -> None:
    engine = recording(settings(async_scheduling=True), storm(Random(3)), until=120)
    assert engine.scheduler.num_preemptions > 50
    assert agrees(simulate(workload_of(engine)), engine)


def test_priorities_are_replayed() -> None:
    calls = [replace(c, priority=i % 3) for i, c in enumerate(storm(Random(5)))]
    engine = recording(settings(policy="priority"), calls)
    outcome = simulate(workload_of(engine))
    assert agrees(outcome, engine)
    assert outcome.by_cause.keys() == {"kv_full", "priority"}


def test_prefix_hits_are_replayed() -> None:
    calls = [replace(c, shared="system", num_shared_tokens=64) for c in storm(Random(5), rate=5.0)]
    engine = recording(settings(), calls)
    outcome = simulate(workload_of(engine))
    assert engine.scheduler.num_preemptions > 50
    assert agrees(outcome, engine)
    uncached = simulate(with_settings(workload_of(engine), enable_prefix_caching=False))
    assert share_computed_again(uncached) > 2 * share_computed_again(outcome)


def test_adapters_wait_for_their_turn() -> None:
    calls = [replace(c, adapter=f"a{i % 4}") for i, c in enumerate(storm(Random(5), rate=1.0))]
    load = workload_of(recording(settings(max_loras=1), calls))
    several = simulate(with_settings(load, max_loras=4))
    one = simulate(load)
    assert one.measures.queue_p95 == pytest.approx(load.recorded.queue_p95, rel=0.1)
    assert several.queue.mean() < one.queue.mean() / 2


def test_a_slow_connector_is_as_slow_again() -> None:
    connector = SimulatedConnector(
        num_tokens=lambda request: request.num_prompt_tokens, load_seconds=lambda request: 3.0
    )
    pulled = replace(settings(), kv_connector=KVConnectorConfig())
    engine = recording(pulled, storm(Random(5), rate=0.6), connector=connector)
    load = workload_of(engine)
    recorded, slower = simulate(load), simulate(with_connector_latency(load, 2.0))
    assert recorded.measures.ttft_p50 == pytest.approx(load.recorded.ttft_p50, rel=0.1)
    assert slower.measures.ttft_p50 == pytest.approx(6.0, rel=0.1)


def test_fewer_drafts_take_more_steps() -> None:
    drafting = replace(settings(), speculation=SpeculationConfig(num_speculative_tokens=3))
    calls = storm(Random(5), rate=0.6)
    engine = recording(drafting, calls, num_accepted=lambda name, n: n % 4)
    load = workload_of(engine)
    recorded = simulate(load)
    assert recorded.num_steps == pytest.approx(engine.scheduler.num_steps, rel=0.05)
    assert recorded.measures.itl_p50 == pytest.approx(load.recorded.itl_p50, rel=0.1)
    none = simulate(with_settings(load, num_speculative_tokens=0))
    assert none.num_steps > 1.5 * recorded.num_steps


def test_a_grammar_is_waited_for_again() -> None:
    calls = [replace(c, grammar="g", blocked_seconds=4.0) for c in storm(Random(5), rate=0.6)]
    load = workload_of(recording(settings(), calls))
    assert simulate(load).measures.queue_p50 == pytest.approx(load.recorded.queue_p50, rel=0.1)


def test_a_client_that_leaves_leaves_again() -> None:
    calls = [
        replace(c, gone_after_seconds=2.0 if i % 4 == 0 else None)
        for i, c in enumerate(storm(Random(5)))
    ]
    engine = recording(settings(), calls)
    load = workload_of(engine)
    assert sum(request.aborted_after_ns is not None for request in load.requests) > 10
    assert agrees(simulate(load), engine)


def test_a_closed_loop_keeps_as_many_in_flight() -> None:
    engine = closed_loop(
        settings(), lambda n: Call(num_prompt_tokens=64, max_tokens=160), clients=14, count=60
    )
    load = workload_of(engine)
    assert (load.clients.kind, load.clients.num_in_flight) == ("closed", 14)
    assert agrees(simulate(load), engine)
    fewer = simulate(with_clients(load, "closed", 5))
    assert fewer.num_preemptions == 0
    assert fewer.num_finished == 60


def test_a_closed_loop_of_nobody_is_refused(pressed: Workload) -> None:
    with pytest.raises(ValueError, match="closed:8"):
        with_clients(pressed, "closed", 0)


# ---------------------------------------------------------------------------------------- stretches


def test_a_stretch_begins_with_what_was_in_flight(
    pressed_run: Recording, pressed: Workload
) -> None:
    middle = pressed.start_ts + pressed.duration_ns // 3
    load = workload_of(pressed_run, start_ts=middle)
    early = [request for request in load.requests if request.arrived_ns < 0]
    assert [r.num_outputs_before > 0 for r in early if r.was_running].count(True) > 3
    assert load.recorded.num_preemptions
    assert simulate(load).num_preemptions == pytest.approx(load.recorded.num_preemptions, rel=0.2)


def test_who_had_not_ended_is_told_and_gets_at_least_what_it_had(
    pressed_run: Recording, pressed: Workload
) -> None:
    middle = pressed.start_ts + pressed.duration_ns // 2
    load = workload_of(pressed_run, end_ts=middle)
    still_open = [request for request in load.requests if not request.is_finished]
    assert still_open
    assert f"{len(still_open):,} of {load.num_requests:,} requests had not ended" in load.notes[0]


# ------------------------------------------------------------------------------------ refusals


def test_a_setting_that_cannot_be_changed_is_refused_with_those_that_can(
    pressed: Workload,
) -> None:
    with pytest.raises(ValueError, match=r"swap_space cannot be changed .* max_num_seqs"):
        with_settings(pressed, swap_space=4)


def test_a_value_that_is_not_possible_says_why(pressed: Workload) -> None:
    with pytest.raises(ValueError, match=r"watermark is 2\.0"):
        with_settings(pressed, watermark=2.0)


def test_other_blocks_keep_the_memory(pressed: Workload) -> None:
    changed = with_settings(pressed, block_size=32).config.cache
    assert (changed.block_size, changed.num_usable_blocks) == (32, 60)
