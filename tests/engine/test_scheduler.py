"""The scheduler's decisions and the reasons it gives for them."""

from __future__ import annotations

import pytest

from engine.request import RequestStatus
from telemetry.records import RequestAdmitted, RequestFinished, RequestPreempted
from telemetry.vocabulary import (
    EventKind,
    FinishReason,
    PreemptionCause,
    SkipReason,
    StopReason,
    VictimRule,
    ZeroReason,
)
from tests.engine.builders import Run, config


def test_a_step_worked_out_by_hand() -> None:
    """16 tokens: A decodes 1, B wants 5, C hits 8 of 28 and gets the 10 that are left."""
    run = Run(config(max_num_batched_tokens=16))
    cached = list(range(1, 9))
    run.add("warm", prompt=[*cached, 99], max_tokens=1)
    run.to_the_end()
    run.add("a", prompt=4)
    run.step()
    run.add("b", prompt=5)
    run.add("c", prompt=[*cached, *range(100, 120)])
    output = run.step()
    assert output.num_scheduled_tokens == {"a": 1, "b": 5, "c": 10}
    assert output.num_prefix_hit_tokens["c"] == 8
    assert run.last_step.stop_reason == StopReason.queue_empty


def storm(policy: str = "fcfs", **fields: object) -> Run:
    """Returns a run in which three requests of 8 tokens outgrow 6 blocks of 4."""
    run = Run(config(num_usable_blocks=6, policy=policy, enable_prefix_caching=False, **fields))
    for name, priority in (("a", 0), ("b", 5), ("c", 1)):
        run.add(name, prompt=8, max_tokens=6, priority=priority if policy == "priority" else 0)
    run.step()
    return run


def test_fcfs_preempts_the_last_of_the_running_list() -> None:
    run = storm()
    run.step()
    event = run.events(RequestPreempted)[0]
    assert (event.request, event.beneficiary) == (2, 0)
    assert event.cause == PreemptionCause.kv_full
    assert event.victim_rule == VictimRule.running_tail


def urgent_behind_low() -> Run:
    """Returns a run whose next step grants `low` a token, and then evicts it for `urgent`."""
    run = Run(config(num_usable_blocks=4, policy="priority"))
    run.add("low", prompt=6, max_tokens=8, priority=9)
    run.step()
    run.add("urgent", prompt=8, max_tokens=8, priority=1)
    run.step()
    assert [request.request_id for request in run.scheduler.running] == ["low", "urgent"]
    return run


def test_priority_preempts_the_least_urgent_even_if_already_scheduled() -> None:
    run = urgent_behind_low()
    output = run.step()
    event = run.events(RequestPreempted)[0]
    assert (event.request, event.beneficiary) == (0, 1)
    assert event.cause == PreemptionCause.priority
    assert event.victim_rule == VictimRule.lowest_priority
    assert event.beneficiary_allocated == 1
    assert "low" not in output.num_scheduled_tokens


def test_a_scheduled_victim_gives_its_tokens_back() -> None:
    run = urgent_behind_low()
    output = run.step()
    event = run.events(RequestPreempted)[0]
    assert event.num_withdrawn_tokens == 1
    assert event.num_computed_tokens_lost == 7
    assert output.num_scheduled_tokens == {"urgent": 1}
    assert output.total_num_scheduled_tokens == run.last_step.num_scheduled_tokens == 1


@pytest.mark.parametrize("priorities", [(1, 1, 1), (3, 3, 3)])
def test_among_equals_the_later_arrival_is_the_victim(priorities: tuple[int, ...]) -> None:
    run = Run(config(num_usable_blocks=6, policy="priority", enable_prefix_caching=False))
    for name, priority in zip("abc", priorities, strict=True):
        run.add(name, prompt=8, max_tokens=6, priority=priority)
    run.steps(2)
    event = run.events(RequestPreempted)[0]
    assert event.request == 2
    assert event.cause == PreemptionCause.kv_full


def test_the_five_things_that_happen_to_a_victim() -> None:
    run = storm()
    victim = run.scheduler.running[-1]
    held = run.scheduler.kv.num_blocks_held(victim)
    output = run.step()
    event = run.events(RequestPreempted)[0]
    assert event.num_blocks_freed == held
    assert run.scheduler.kv.num_blocks_held(victim) == 0
    assert victim.status is RequestStatus.PREEMPTED
    assert victim.num_computed_tokens == 0
    assert victim.num_output_tokens == event.num_output_tokens_kept == 1
    assert next(iter(run.scheduler.waiting)) is victim
    assert output.preempted_req_ids == {"c"}


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    run = storm()
    run.add("late", prompt=1)
    output = run.step()
    assert output.scheduled_new_reqs == ()
    assert run.last_step.stop_reason == StopReason.preempted_this_step


def test_a_request_that_evicts_itself_ends_the_scan() -> None:
    run = Run(config(num_usable_blocks=4, enable_prefix_caching=False))
    run.add("a", prompt=6, max_tokens=8)
    run.add("b", prompt=8, max_tokens=8)
    output = run.step()
    output = run.step()
    event = run.events(RequestPreempted)[0]
    assert (event.request, event.beneficiary) == (1, 1)
    assert event.victim_rule == VictimRule.itself
    assert event.beneficiary_allocated == 0
    assert output.num_scheduled_tokens == {"a": 1}


def test_those_behind_a_self_eviction_get_nothing_and_are_told_why() -> None:
    run = Run(config(num_usable_blocks=5, policy="priority", enable_prefix_caching=False))
    run.add("low", prompt=8, max_tokens=8, priority=9)
    run.add("next", prompt=9, max_tokens=3, priority=1)
    run.step()
    assert [r.request_id for r in run.scheduler.running] == ["next", "low"]
    run.scheduler.running.reverse()
    run.step()
    _, dense = run.recorder.step_requests[-1]
    assert dense.zero_reason is not None
    assert list(dense.zero_reason) == [ZeroReason.behind_preempted]


def test_a_resumed_request_is_sent_whole_again() -> None:
    run = storm()
    outputs = [run.step() for _ in range(12)]
    resumed = [d for o in outputs for d in o.scheduled_cached_reqs if d.resumed]
    assert resumed
    for data in resumed:
        assert data.all_token_ids is not None
        assert len(data.all_token_ids) == 8 + data.num_output_tokens
        assert data.new_block_ids is not None
        assert len(data.new_block_ids[0]) * 4 >= len(data.all_token_ids)


def test_a_preempted_request_finishes_with_all_its_tokens() -> None:
    run = storm()
    run.to_the_end()
    tokens: dict[str, int] = {}
    for result in run.results:
        tokens[result.request_id] = tokens.get(result.request_id, 0) + len(result.new_token_ids)
    assert tokens == {"a": 6, "b": 6, "c": 6}


def test_tokens_lost_and_tokens_computed_again_are_recorded() -> None:
    run = storm()
    run.to_the_end()
    lost = sum(e.num_computed_tokens_lost for e in run.events(RequestPreempted))
    recomputed = sum(row.num_recomputed_tokens or 0 for row in run.recorder.steps)
    assert lost == recomputed > 0


def test_tokens_back_from_the_cache_are_not_computed_again() -> None:
    run = Run(config(num_usable_blocks=6))
    for name in "abc":
        run.add(name, prompt=8, max_tokens=6)
    run.to_the_end()
    lost = sum(e.num_computed_tokens_lost for e in run.events(RequestPreempted))
    hits = sum(e.num_hit_tokens for e in run.events(RequestAdmitted) if e.kind == EventKind.resumed)
    recomputed = sum(row.num_recomputed_tokens or 0 for row in run.recorder.steps)
    assert hits > 0
    assert lost == recomputed + hits


def test_the_counter_and_the_record_agree() -> None:
    run = storm()
    run.to_the_end()
    rows = len(run.events(RequestPreempted))
    assert run.scheduler.num_preemptions == run.recorder.num_preemptions == rows > 0
    assert run.last_step.num_preemptions_total == rows


def test_a_withdrawn_chunk_leaves_nothing_in_the_cache() -> None:
    """The victim's eighth token would have filled its second block, but never ran."""
    run = urgent_behind_low()
    low = run.scheduler.requests["low"]
    run.step()
    assert low.num_tokens == 8
    assert run.scheduler.kv.find_hits(low).num_tokens <= 4


# ------------------------------------------------------------------------------ why admission ends


def stop_of(run: Run) -> StopReason:
    run.step()
    return StopReason(run.last_step.stop_reason or 0)


def test_stop_queue_empty() -> None:
    run = Run(config())
    run.add("a")
    assert stop_of(run) == StopReason.queue_empty


def test_stop_token_budget() -> None:
    run = Run(config(max_num_batched_tokens=6))
    run.add("a", prompt=6)
    run.add("b")
    assert stop_of(run) == StopReason.token_budget


def test_stop_max_num_seqs_names_the_head() -> None:
    run = Run(config(max_num_seqs=1))
    run.add("a")
    head = run.add("b")
    assert stop_of(run) == StopReason.max_num_seqs
    assert run.last_step.head_request == head.number


def test_stop_max_num_active_seqs() -> None:
    run = Run(config(max_num_seqs=2, max_num_active_seqs=1))
    run.add("a")
    run.add("b")
    assert stop_of(run) == StopReason.max_num_active_seqs


def test_stop_kv_blocks_whole_prompt_with_its_number() -> None:
    run = Run(config(num_usable_blocks=6))
    run.add("a", prompt=12)
    run.add("b", prompt=16)
    run.add("small", prompt=3)
    assert stop_of(run) == StopReason.kv_blocks_whole_prompt
    assert run.last_step.head_blocks_needed == 4
    assert run.last_step.min_follower_blocks_needed == 1


def test_stop_kv_blocks_chunk() -> None:
    run = Run(config(num_usable_blocks=6, scheduler_reserve_full_isl=False))
    run.add("a", prompt=12)
    run.add("b", prompt=16)
    assert stop_of(run) == StopReason.kv_blocks_chunk


def test_stop_kv_watermark() -> None:
    run = Run(config(num_usable_blocks=9, watermark=0.2))
    run.add("a", prompt=16)
    run.add("b", prompt=16)
    assert stop_of(run) == StopReason.kv_watermark


def test_the_watermark_does_not_keep_the_first_one_out() -> None:
    run = Run(config(num_usable_blocks=4, watermark=0.5))
    run.add("a", prompt=16)
    assert stop_of(run) == StopReason.queue_empty


def test_stop_chunked_prefill_disabled() -> None:
    run = Run(config(max_num_batched_tokens=20, max_model_len=20, enable_chunked_prefill=False))
    run.add("a", prompt=12)
    run.add("b", prompt=12)
    assert stop_of(run) == StopReason.chunked_prefill_disabled


def test_a_request_that_never_fits_waits_for_ever_and_is_named() -> None:
    run = Run(config(num_usable_blocks=3))
    run.add("huge", prompt=16)
    for _ in range(3):
        assert run.scheduler.schedule().total_num_scheduled_tokens == 0
    assert run.scheduler.num_waiting == 1


# ------------------------------------------------------------------------- skipped, zero, repeats


def test_a_request_whose_grammar_compiles_is_skipped_and_others_pass_it() -> None:
    run = Run(config())
    blocked = run.add("g", blocked_by=SkipReason.grammar_compiling)
    run.add("a")
    output = run.step()
    assert list(output.num_scheduled_tokens) == ["a"]
    assert run.last_step.num_skipped_waiting == 1
    skipped = [e for e in run.recorder.events if e.kind == EventKind.skipped]
    assert [(e.request, e.reason) for e in skipped] == [
        (blocked.number, SkipReason.grammar_compiling)
    ]
    run.scheduler.unblock("g")
    assert "g" in run.step().num_scheduled_tokens


def test_a_failed_grammar_ends_its_request_with_an_error() -> None:
    run = Run(config())
    run.add("g", blocked_by=SkipReason.grammar_compiling)
    run.scheduler.unblock("g", SkipReason.grammar_failed)
    run.step()
    assert run.results[-1].finish_reason == FinishReason.error
    assert run.results[-1].error


def test_adapters_beyond_max_loras_are_skipped() -> None:
    run = Run(config(max_loras=1))
    run.add("a", adapter="x")
    run.add("b", adapter="y")
    run.add("c", adapter="x")
    assert list(run.step().num_scheduled_tokens) == ["a", "c"]
    assert run.scheduler.requests["b"].skipped_for == SkipReason.lora_slots


def test_a_tail_without_budget_is_told_so() -> None:
    """The adaptive cap of the long prompt rises when the queue empties, and starves the tail."""
    run = Run(
        config(
            max_num_batched_tokens=16,
            max_num_scheduled_tokens=4,
            long_prefill_token_threshold=1,
            long_prefill_token_threshold_adaptive=True,
        )
    )
    run.add("long", prompt=40)
    waiting = [run.add(f"r{n}", prompt=1, max_tokens=9).request_id for n in range(19)][3:]
    run.step()
    run.scheduler.finish_requests(waiting, FinishReason.abort_client)
    assert run.step().num_scheduled_tokens == {"long": 4}
    _, dense = run.recorder.step_requests[-1]
    assert dense.zero_reason is not None
    assert list(dense.zero_reason[1:]) == [ZeroReason.token_budget] * 3


def test_equal_empty_steps_are_one_row_with_a_count() -> None:
    run = Run(config(num_usable_blocks=3))
    run.add("huge", prompt=16)
    run.steps(5)
    run.scheduler.finish_requests(["huge"], FinishReason.abort_client)
    empty = [row for row in run.recorder.steps if row.num_scheduled_tokens == 0]
    assert [row.num_repeats for row in empty] == [5]
    assert empty[0].stop_reason == StopReason.kv_blocks_whole_prompt


# --------------------------------------------------------------------------------- ends of requests


def test_an_aborted_request_is_reported_and_recorded_once() -> None:
    run = Run(config())
    run.add("a", max_tokens=50)
    run.step()
    run.scheduler.finish_requests(["a", "a", "unknown"], FinishReason.abort_client)
    assert run.step().finished_req_ids == {"a"}
    finished = run.events(RequestFinished)
    assert [event.reason for event in finished] == [FinishReason.abort_client]


def test_an_id_in_use_is_refused() -> None:
    run = Run(config())
    run.add("a")
    with pytest.raises(ValueError, match="'a' is in use"):
        run.add("a")


def test_a_cache_reset_preempts_all_and_resumes_them_in_order() -> None:
    run = Run(config())
    for name in "abc":
        run.add(name, max_tokens=9)
    run.step()
    assert run.scheduler.reset_prefix_cache(reset_running=True)
    causes = {event.cause for event in run.events(RequestPreempted)}
    assert causes == {PreemptionCause.cache_reset}
    output = run.step()
    assert list(output.num_scheduled_tokens) == ["a", "b", "c"]
    assert output.preempted_req_ids == {"a", "b", "c"}


def test_a_victim_that_was_given_nothing_is_told_as_a_victim_alone() -> None:
    run = Run(
        config(
            num_usable_blocks=4,
            policy="priority",
            max_num_batched_tokens=8,
            long_prefill_token_threshold=4,
            scheduler_reserve_full_isl=False,
        )
    )
    run.add("low", prompt=40, priority=9)
    run.step()
    run.add("urgent", prompt=4, max_tokens=8, priority=0)
    run.step()
    output = run.scheduler.schedule(throttle_prefills=True)
    run.scheduler.update_from_output(output, run.runner.execute(output))
    assert output.preempted_in_order == ("low",)
    assert run.last_step.num_zero_requests == 0
    assert list(run.recorder.step_requests[-1][1].request) == [1]
