"""The seed's own examples, under its names.

The seed is the description of the V1 scheduler that this engine implements: its worked step, its
five actions of a preemption, its two victim rules, its table of `SchedulerOutput`'s field families,
and the five questions of its self-check, each a class here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest

from engine.config import EncoderConfig, EngineConfig, KVConnectorConfig, SpeculationConfig
from engine.encoder_cache import EncoderItem
from engine.request import Request, RequestStatus
from engine.runner.batch_error import BatchError
from engine.runner.input_batch import InputBatch
from engine.scheduler import ModelRunnerOutput, SchedulerOutput
from engine.scheduler.queues import choose_victim
from telemetry.records import RequestPreempted
from telemetry.vocabulary import EventKind, FinishReason, StopReason, ZeroReason
from tests.engine.builders import Run, config


class Connector:
    """Has so many tokens of each request that is listed."""

    def __init__(self, tokens: dict[str, int] | None = None, *, is_async: bool = False) -> None:
        self._tokens = tokens or {}
        self._is_async = is_async

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        return max(0, self._tokens.get(request.request_id, 0) - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        return self._is_async

    def delays_free(self, request: Request) -> bool:
        return False


def with_drafts(settings: EngineConfig, num_drafts: int) -> EngineConfig:
    return replace(settings, speculation=SpeculationConfig(num_speculative_tokens=num_drafts))


def with_encoder(settings: EngineConfig, budget: int = 8, size: int = 32) -> EngineConfig:
    return replace(settings, encoder=EncoderConfig(compute_budget=budget, cache_size=size))


def update(run: Run, output: SchedulerOutput, sampled: dict[str, list[int]]) -> None:
    """Takes a step in with these outputs."""
    tokens = ModelRunnerOutput(sampled_token_ids=sampled)
    run.results += run.scheduler.update_from_output(output, tokens)
    run.scheduler.check_integrity()


def zero_reasons(run: Run, step: int) -> dict[int, ZeroReason]:
    """Returns who was given nothing in a recorded step, and why."""
    dense = dict(run.recorder.step_requests)[step]
    assert dense.zero_reason is not None
    return {
        int(number): ZeroReason(reason)
        for number, reason in zip(dense.request, dense.zero_reason, strict=True)
        if reason != 255
    }


# ----------------------------------------------------------- 4. a step worked out by hand (手算)


class TestHandWorkedStep:
    """16 tokens: running A wants 1, running B 5, waiting C hits 8 and has 20 to compute."""

    @pytest.fixture
    def run(self) -> Run:
        settings = config(max_num_batched_tokens=40, max_num_scheduled_tokens=16)
        run = Run(with_drafts(settings, 4))
        shared = list(range(1, 9))
        first = run.add("warm", prompt=[*shared, 99], max_tokens=1)
        update(run, run.scheduler.schedule(), {"warm": [7]})
        assert first.is_finished
        run.add("A", prompt=4, max_tokens=9)
        run.add("B", prompt=4, max_tokens=9)
        update(run, run.scheduler.schedule(), {"A": [7], "B": [7]})
        run.scheduler.update_draft_token_ids({"B": [11, 12, 13, 14]})
        run.add("C", prompt=[*shared, *range(100, 120)])
        return run

    def test_a_gets_1_b_gets_5_c_gets_10(self, run: Run) -> None:
        assert run.scheduler.schedule().num_scheduled_tokens == {"A": 1, "B": 5, "C": 10}

    def test_the_remaining_budget_is_15_then_10_then_0(self, run: Run) -> None:
        output = run.scheduler.schedule()
        update(run, output, {"A": [7], "B": [7]})
        _, dense = run.recorder.step_requests[-1]
        assert list(dense.num_wanted_tokens) == [1, 5, 20]
        granted = [int(count) for count in dense.num_scheduled_tokens]
        assert [16 - used for used in accumulate(granted)] == [15, 10, 0]
        assert run.last_step.token_budget == 16

    def test_the_8_hit_tokens_move_the_start_of_c_and_cost_nothing(self, run: Run) -> None:
        output = run.scheduler.schedule()
        (data,) = output.scheduled_new_reqs
        assert (data.request_id, data.num_computed_tokens) == ("C", 8)
        assert output.num_prefix_hit_tokens == {"C": 8}
        assert output.total_num_scheduled_tokens == 16

    def test_the_next_step_goes_on_with_c_from_what_is_left(self, run: Run) -> None:
        update(run, run.scheduler.schedule(), {"A": [7], "B": [7]})
        run.scheduler.update_draft_token_ids({"B": [21, 22, 23, 24]})
        assert run.scheduler.schedule().num_scheduled_tokens == {"A": 1, "B": 5, "C": 10}

    def test_what_c_gets_next_depends_on_what_a_and_b_have_by_then(self, run: Run) -> None:
        update(run, run.scheduler.schedule(), {"A": [7], "B": [7]})
        run.add("D", prompt=9)
        output = run.scheduler.schedule()
        assert output.num_scheduled_tokens == {"A": 1, "B": 1, "C": 10, "D": 4}


# -------------------------------------------------------- 5. when KV runs short (_preempt_request)


def evicted(**fields: object) -> tuple[Run, Request]:
    """Returns a run whose last step has evicted `victim`, in the middle of its prompt and an item.

    `other` holds 2 of 5 blocks and needs a third; `victim` holds 3, and 10 of its 16 tokens.
    """
    settings = config(
        num_usable_blocks=5,
        long_prefill_token_threshold=10,
        scheduler_reserve_full_isl=False,
        enable_prefix_caching=False,
    )
    settings = replace(with_encoder(settings), kv_connector=KVConnectorConfig(role="kv_producer"))
    run = Run(settings, connector=Connector(), **fields)  # type: ignore[arg-type]
    run.add("other", prompt=8, max_tokens=8)
    victim = run.add("victim", prompt=16, encoder_items=(EncoderItem("image", 8, 8),))
    run.step()
    assert run.scheduler.encoder_cache is not None
    assert (victim.num_computed_tokens, run.scheduler.kv.num_blocks_held(victim)) == (10, 3)
    assert run.scheduler.encoder_cache.num_reclaimable == 32 - 8
    assert victim in run.scheduler.reserving
    run.step()
    return run, victim


class TestFiveActionsOfAPreemption:
    """What `_preempt_request()` does with its victim."""

    def test_1_its_kv_blocks_and_its_encoder_cache_are_released(self) -> None:
        run, victim = evicted()
        assert run.scheduler.kv.num_blocks_held(victim) == 0
        assert run.scheduler.kv.pool.num_free == 5 - 3
        assert run.scheduler.encoder_cache is not None
        assert run.scheduler.encoder_cache.num_reclaimable == 32

    def test_2_its_inflight_prefill_is_cleared(self) -> None:
        run, victim = evicted()
        assert victim not in run.scheduler.reserving

    def test_3_its_status_is_preempted(self) -> None:
        _, victim = evicted()
        assert victim.status is RequestStatus.PREEMPTED

    def test_4_its_progress_is_zero(self) -> None:
        _, victim = evicted()
        assert victim.num_computed_tokens == 0

    def test_4_its_drafts_are_cleared(self) -> None:
        run = Run(with_drafts(config(num_usable_blocks=4), 2))
        for name in "ab":
            run.add(name, prompt=8, max_tokens=8)
        update(run, run.scheduler.schedule(), {"a": [7], "b": [7]})
        run.scheduler.update_draft_token_ids({"b": [1, 2]})
        run.scheduler.schedule()
        victim = run.scheduler.requests["b"]
        assert victim.status is RequestStatus.PREEMPTED
        assert victim.draft_token_ids == []

    def test_5_it_goes_to_the_front_of_waiting_and_is_recorded(self) -> None:
        run = Run(config(num_usable_blocks=4, enable_prefix_caching=False))
        for name in "abc":
            run.add(name, prompt=8, max_tokens=8)
        run.step()
        output = run.step()
        assert [request.request_id for request in run.scheduler.waiting] == ["b", "c"]
        assert output.preempted_req_ids == {"b"}
        (event,) = run.events(RequestPreempted)
        assert (event.kind, event.request) == (EventKind.preempted, 1)
        assert run.scheduler.num_preemptions == 1

    def test_its_outputs_are_kept_and_it_is_recomputed(self) -> None:
        run = Run(config(num_usable_blocks=4, enable_prefix_caching=False))
        for name in "ab":
            run.add(name, prompt=8, max_tokens=4)
        run.steps(2)
        victim = run.scheduler.requests["b"]
        assert list(victim.output_token_ids) == [7]
        run.to_the_end()
        assert victim.num_output_tokens == 4
        recomputed = sum(row.num_recomputed_tokens or 0 for row in run.recorder.steps)
        assert recomputed == run.events(RequestPreempted)[0].num_computed_tokens_lost == 8


# -------------------------------------------------------------------------- 5. who is the victim


def request(name: str, priority: int, arrival_time: float) -> Request:
    return Run(config()).add(name, priority=priority, arrival_time=arrival_time)


class TestVictim:
    """FCFS sacrifices the tail; PRIORITY the largest (priority, arrival_time)."""

    def test_fcfs_takes_the_tail_of_the_running_list(self) -> None:
        running = [request("a", 9, 9.0), request("b", 5, 5.0), request("c", 0, 0.0)]
        assert choose_victim("fcfs", running) is running[2]

    def test_priority_takes_the_largest_number(self) -> None:
        running = [request("a", 0, 9.0), request("b", 10, 0.0), request("c", 5, 5.0)]
        assert choose_victim("priority", running) is running[1]

    def test_priority_takes_the_later_arrival_of_equals(self) -> None:
        running = [request("a", 5, 1.0), request("b", 5, 3.0), request("c", 5, 2.0)]
        assert choose_victim("priority", running) is running[1]

    def test_priority_takes_the_first_in_the_list_on_a_full_tie(self) -> None:
        running = [request("a", 0, 1.0), request("c", 5, 3.0), request("b", 5, 3.0)]
        assert choose_victim("priority", running) is running[1]

    @pytest.mark.parametrize(
        ("policy", "urgencies", "victim"),
        [
            ("fcfs", [(9, 9.0), (5, 5.0), (0, 0.0)], "c"),
            ("priority", [(0, 0.0), (10, 1.0), (5, 2.0)], "b"),
            ("priority", [(0, 0.0), (5, 3.0), (5, 2.0)], "b"),
            ("priority", [(0, 0.0), (5, 2.0), (5, 2.0)], "b"),
        ],
    )
    def test_the_scheduler_evicts_whom_the_rule_names(
        self, policy: str, urgencies: list[tuple[int, float]], victim: str
    ) -> None:
        """Admitted one by one, so the list is not in the order of urgency; all outgrow 6 blocks."""
        run = Run(config(num_usable_blocks=6, policy=policy, enable_prefix_caching=False))
        for name, prompt, (priority, arrival) in zip("abc", (6, 7, 8), urgencies, strict=True):
            run.add(name, prompt=prompt, max_tokens=8, priority=priority, arrival_time=arrival)
            run.step()
        assert [request.request_id for request in run.scheduler.running] == ["a", "b", "c"]
        assert run.step().preempted_in_order == (victim,)


class TestScheduledVictim:
    """A victim that was registered in this step already gives back all that it was given."""

    def test_its_tokens_go_to_who_comes_behind(self) -> None:
        """Budget 8: low has 1, urgent 1 and needs a block; prompt has all the rest, 7 and not 6."""
        run = Run(
            config(
                num_usable_blocks=7,
                policy="priority",
                enable_prefix_caching=False,
                max_num_batched_tokens=8,
                scheduler_reserve_full_isl=False,
            )
        )
        for name, prompt, priority in (("low", 7, 9), ("urgent", 7, 0), ("prompt", 24, 1)):
            run.add(name, prompt=prompt, max_tokens=9, priority=priority)
            run.step()
        output = run.step()
        assert output.preempted_in_order == ("low",)
        assert output.num_scheduled_tokens == {"urgent": 1, "prompt": 7}
        assert output.total_num_scheduled_tokens == run.last_step.token_budget == 8
        assert run.events(RequestPreempted)[0].num_withdrawn_tokens == 1

    def test_its_encoder_budget_goes_to_who_comes_behind(self) -> None:
        """One item a step: low encodes it, is withdrawn, and prompt encodes its own."""
        run = Run(
            with_encoder(
                config(
                    num_usable_blocks=14,
                    policy="priority",
                    enable_prefix_caching=False,
                    max_num_batched_tokens=24,
                    long_prefill_token_threshold=8,
                    scheduler_reserve_full_isl=False,
                )
            )
        )
        run.add("low", prompt=40, priority=9, encoder_items=(EncoderItem("one", 32, 8),))
        run.step()
        run.add("urgent", prompt=8, priority=0)
        run.add("prompt", prompt=16, priority=1, encoder_items=(EncoderItem("two", 8, 8),))
        run.step()
        output = run.step()
        assert output.preempted_in_order == ("low",)
        assert output.scheduled_encoder_inputs == {"prompt": [0]}
        assert run.last_step.num_encoder_embeds == 8
        assert run.events(RequestPreempted)[0].num_withdrawn_embeds == 8

    def test_its_withdrawn_chunk_is_no_hit(self) -> None:
        """24 tokens of low are computed; the 8 that were withdrawn would have filled two blocks."""
        run = Run(
            config(
                num_usable_blocks=9,
                policy="priority",
                max_num_batched_tokens=16,
                long_prefill_token_threshold=8,
                scheduler_reserve_full_isl=False,
            )
        )
        low = run.add("low", prompt=40, priority=9)
        run.step()
        run.add("urgent", prompt=4, priority=0)
        run.step()
        assert run.step().preempted_in_order == ("low",)
        assert run.scheduler.kv.find_hits(low).num_tokens == 24

    def test_its_fields_leave_the_output(self) -> None:
        settings = config(num_usable_blocks=4, policy="priority", enable_prefix_caching=False)
        run = Run(with_drafts(settings, 2))
        run.add("low", prompt=4, max_tokens=9, priority=9)
        update(run, run.scheduler.schedule(), {"low": [7]})
        run.add("urgent", prompt=8, max_tokens=9, priority=0)
        update(run, run.scheduler.schedule(), {"low": [7], "urgent": [7]})
        run.scheduler.update_draft_token_ids({"low": [1, 2], "urgent": []})
        output = run.scheduler.schedule()
        assert output.preempted_in_order == ("low",)
        assert output.num_scheduled_tokens == {"urgent": 1}
        assert output.scheduled_spec_decode_tokens == {}
        assert [data.request_id for data in output.scheduled_cached_reqs] == ["urgent"]
        update(run, output, {"urgent": [7]})
        assert run.events(RequestPreempted)[0].num_withdrawn_drafts == 2


# ------------------------------------------------ 6. SchedulerOutput is the runner's delta protocol


class TestSchedulerOutput:
    """The families of fields, one by one."""

    def test_scheduled_new_reqs_have_all_data_and_come_once(self) -> None:
        run = Run(config())
        added = run.add("a", prompt=[5, 6, 7, 8, 9])
        (data,) = run.step().scheduled_new_reqs
        assert (data.request_id, list(data.prompt_token_ids)) == ("a", [5, 6, 7, 8, 9])
        assert (data.sampling, data.num_computed_tokens) == (added.sampling, 0)
        assert [len(blocks) for blocks in data.block_ids] == [2]
        assert run.step().scheduled_new_reqs == ()

    def test_scheduled_cached_reqs_have_what_has_changed(self) -> None:
        run = Run(config())
        run.add("a", prompt=7)
        run.step()
        (without,) = run.step().scheduled_cached_reqs
        assert (without.num_computed_tokens, without.num_output_tokens) == (7, 1)
        assert (without.new_block_ids, without.all_token_ids) == (None, None)
        (with_block,) = run.step().scheduled_cached_reqs
        assert with_block.new_block_ids is not None
        assert [len(blocks) for blocks in with_block.new_block_ids] == [1]

    def test_num_scheduled_tokens_and_their_total(self) -> None:
        run = Run(config(max_num_batched_tokens=10))
        run.add("a", prompt=6)
        run.add("b", prompt=9)
        output = run.step()
        assert output.num_scheduled_tokens == {"a": 6, "b": 4}
        assert output.total_num_scheduled_tokens == 10

    def test_scheduled_spec_decode_tokens_are_the_drafts_that_fit(self) -> None:
        run = Run(with_drafts(config(max_num_batched_tokens=4), 3))
        for name in "ab":
            run.add(name, prompt=2, max_tokens=9)
        update(run, run.scheduler.schedule(), {"a": [7], "b": [7]})
        run.scheduler.update_draft_token_ids({"a": [1], "b": [3, 4, 5]})
        output = run.scheduler.schedule()
        assert output.scheduled_spec_decode_tokens == {"a": [1], "b": [3]}

    def test_scheduled_encoder_inputs_are_the_items_to_run(self) -> None:
        run = Run(with_encoder(config(), budget=16))
        items = (EncoderItem("x", 0, 4), EncoderItem("y", 6, 4))
        run.add("a", prompt=12, encoder_items=items)
        assert run.step().scheduled_encoder_inputs == {"a": [0, 1]}
        assert run.step().scheduled_encoder_inputs == {}

    def test_finished_req_ids_are_told_once(self) -> None:
        run = Run(config())
        run.add("a", max_tokens=1)
        run.add("b", max_tokens=9)
        run.step()
        run.scheduler.finish_requests(["b"], FinishReason.abort_client)
        assert run.step().finished_req_ids == {"a", "b"}
        assert run.step().finished_req_ids == frozenset()

    def test_preempted_req_ids_are_told_once(self) -> None:
        run = Run(config(num_usable_blocks=4))
        for name in "ab":
            run.add(name, prompt=8, max_tokens=9)
        run.step()
        assert run.step().preempted_req_ids == {"b"}
        assert run.step().preempted_req_ids == frozenset()

    @pytest.mark.parametrize("is_async", [True, False])
    def test_connector_metadata_says_what_comes_from_outside(self, is_async: bool) -> None:
        settings = replace(config(), kv_connector=KVConnectorConfig())
        run = Run(settings, connector=Connector({"a": 8}, is_async=is_async))
        run.add("a", prompt=12)
        output = run.scheduler.schedule()
        assert output.kv_loads_started == ({"a": (8, 0, 8)} if is_async else {})
        assert output.num_external_tokens == ({} if is_async else {"a": 8})

    def test_structured_output_flags_say_whether_a_bitmask_can_be_filled(self) -> None:
        run = Run(config(async_scheduling=True))
        run.add("a", max_tokens=9, grammar=AnyToken())
        first, second = run.scheduler.schedule(), run.scheduler.schedule()
        assert first.has_structured_output_requests
        assert not first.pending_structured_output_tokens
        assert second.has_structured_output_requests
        assert second.pending_structured_output_tokens
        update(run, first, {"a": [7]})


class AnyToken:
    """A grammar that takes everything."""

    key = "any"

    def accepted_prefix(self, token_ids: list[int]) -> list[int]:
        return token_ids


# --------------------------------------------------------------------------- the self-check (自检)


class TestQuestion1NothingToSchedule:
    """Which four kinds of causes has `num_new_tokens == 0` of a running request?

    Nothing is left to schedule (all is in flight, or the pipeline is busy with it), the encoder's
    compute budget is used up, its cache is full, or no aligned chunk fits.
    """

    def test_all_its_tokens_are_in_flight(self) -> None:
        run = Run(config(async_scheduling=True))
        run.add("a", max_tokens=1)
        first, second = run.scheduler.schedule(), run.scheduler.schedule()
        assert second.num_scheduled_tokens == {}
        update(run, first, {"a": [7]})
        update(run, second, {})
        run.step()
        assert zero_reasons(run, second.step) == {0: ZeroReason.max_tokens_in_flight}

    def test_the_pipeline_is_busy_with_it(self) -> None:
        run = Run(config(pp_size=2))
        run.add("a", max_tokens=9)
        run.step()
        output = run.step()
        run.step()
        assert output.num_scheduled_tokens == {}
        assert zero_reasons(run, output.step) == {0: ZeroReason.pipeline_cadence}

    @pytest.mark.parametrize(
        ("budget", "size", "reason"),
        [(8, 32, ZeroReason.encoder_budget), (16, 8, ZeroReason.encoder_cache)],
    )
    def test_the_encoder_has_no_room_for_it(
        self, budget: int, size: int, reason: ZeroReason
    ) -> None:
        """`a` has encoded its item and goes through it; `b` stands before its own."""
        limits = {"max_num_batched_tokens": 24, "long_prefill_token_threshold": 8}
        run = Run(with_encoder(config(**limits), budget, size))
        run.add("a", prompt=24, encoder_items=(EncoderItem("x", 8, 8),))
        run.add("b", prompt=24, encoder_items=(EncoderItem("y", 8, 8),))
        run.step()
        output = run.step()
        assert output.num_scheduled_tokens == {"a": 8}
        run.step()
        assert zero_reasons(run, output.step) == {1: reason}

    def test_no_aligned_chunk_fits(self) -> None:
        """9 tokens: `a` takes 2 of them, and 7 are no whole chunk of 8."""
        settings = config(max_num_batched_tokens=9)
        aligned = replace(settings, cache=replace(settings.cache, chunk_alignment=8))
        run = Run(with_drafts(aligned, 1))
        run.add("a", prompt=4, max_tokens=9)
        update(run, run.scheduler.schedule(), {"a": [7]})
        run.add("b", prompt=24)
        update(run, run.scheduler.schedule(), {"a": [7]})
        run.scheduler.update_draft_token_ids({"a": [1]})
        output = run.scheduler.schedule()
        update(run, output, {"a": [7]})
        assert output.num_scheduled_tokens == {"a": 2}
        assert zero_reasons(run, output.step) == {1: ZeroReason.block_alignment}


class TestQuestion2NoAdmissionAfterAPreemption:
    """Why does a step that preempts admit nobody?"""

    def squeezed(self) -> Run:
        """`a` and `b` outgrow the pool in the next step; `small` would fit in what `b` frees."""
        run = Run(config(num_usable_blocks=4, enable_prefix_caching=False))
        for name in "ab":
            run.add(name, prompt=8, max_tokens=8)
        run.step()
        run.add("small", prompt=4)
        return run

    def test_who_waits_is_not_let_in_though_it_would_fit(self) -> None:
        run = self.squeezed()
        output = run.step()
        assert output.preempted_in_order == ("b",)
        assert list(output.num_scheduled_tokens) == ["a"]
        assert run.scheduler.kv.pool.num_free >= 1
        assert run.last_step.stop_reason == StopReason.preempted_this_step

    def test_what_was_freed_stays_for_those_who_run(self) -> None:
        """Let in, it would take the block that `a` will want next, and be evicted for it."""
        run = self.squeezed()
        run.step()
        assert [request.request_id for request in run.scheduler.running] == ["a"]
        assert run.scheduler.num_preemptions == 1

    def test_the_victim_is_not_overtaken(self) -> None:
        run = self.squeezed()
        run.step()
        assert [request.request_id for request in run.scheduler.waiting] == ["b", "small"]


class TestQuestion3Urgency:
    """Which is more urgent, priority 0 or 10, and how are ties of victims broken?"""

    def test_0_is_admitted_before_10(self) -> None:
        run = Run(config(policy="priority", max_num_seqs=1))
        run.add("ten", priority=10)
        run.add("zero", priority=0)
        assert list(run.step().num_scheduled_tokens) == ["zero"]

    def test_10_is_evicted_before_0(self) -> None:
        running = [request("ten", 10, 0.0), request("zero", 0, 9.0)]
        assert choose_victim("priority", running).request_id == "ten"

    def test_of_equal_priorities_the_later_arrival_is_evicted(self) -> None:
        running = [request("early", 5, 1.0), request("late", 5, 2.0)]
        assert choose_victim("priority", running).request_id == "late"

    def test_an_urgent_arrival_alone_evicts_nobody(self) -> None:
        run = Run(config(policy="priority", max_num_seqs=1))
        run.add("ten", priority=10, max_tokens=9)
        run.step()
        run.add("zero", priority=0)
        run.step()
        assert run.scheduler.num_preemptions == 0


class TestQuestion4HitsCostNothing:
    """Why does a token that hits the cache take nothing from the forward pass's budget?"""

    def test_its_kv_is_there_so_the_model_does_not_run_it(self) -> None:
        """Of 12 tokens 8 hit: the step starts at position 8, and a budget of 4 does for all."""
        run = Run(config(max_num_batched_tokens=4))
        shared = list(range(1, 9))
        run.add("warm", prompt=[*shared, 99], max_tokens=1)
        run.to_the_end()
        added = run.add("a", prompt=[*shared, 50, 51, 52, 53])
        output = run.step()
        assert output.scheduled_new_reqs[0].num_computed_tokens == 8
        assert output.num_scheduled_tokens == {"a": 4}
        assert added.num_output_tokens == 1

    def test_at_least_one_token_runs_however_much_hits(self) -> None:
        run = Run(config())
        prompt = list(range(1, 9))
        for name in "ab":
            run.add(name, prompt=prompt, max_tokens=1)
            run.step()
        assert run.last_step.num_prefix_hit_tokens == 4
        assert run.last_step.num_scheduled_tokens == 4


class TestQuestion5PersistentBatch:
    """What do `preempted_req_ids` mean to the runner's persistent `InputBatch`?"""

    def preempted(self) -> tuple[Run, InputBatch, SchedulerOutput]:
        """Returns a run, the batch that has followed it, and the output that evicts `b`."""
        run = Run(config(num_usable_blocks=4, enable_prefix_caching=False))
        for name in "ab":
            run.add(name, prompt=8, max_tokens=3)
        batch = InputBatch(max_num_seqs=2, max_model_len=32, block_size=4)
        follow(batch, run.step())
        return run, batch, run.step()

    def test_the_row_of_a_preempted_request_becomes_free(self) -> None:
        _, batch, output = self.preempted()
        assert batch.request_ids == {"a", "b"}
        follow(batch, output)
        assert batch.request_ids == {"a"}

    def test_it_comes_back_with_all_its_tokens_and_its_whole_table(self) -> None:
        run, batch, output = self.preempted()
        follow(batch, output)
        while "b" not in batch.request_ids:
            follow(batch, run.step())
        row = batch.row_of("b")
        added = run.scheduler.requests["b"]
        held = run.scheduler.kv.block_ids(added)[0]
        assert batch.block_tables[0, row, : len(held)].tolist() == held
        assert batch.token_ids[row, :9].tolist() == list(added.token_ids[:9])

    def test_without_them_the_batch_would_keep_a_row_whose_blocks_are_anothers(self) -> None:
        run, batch, output = self.preempted()
        follow(batch, replace(output, preempted_req_ids=frozenset()))
        while not any(data.resumed for data in output.scheduled_cached_reqs):
            output = run.step()
        with pytest.raises(BatchError, match="resumed but had not been preempted"):
            batch.apply(output)


def follow(batch: InputBatch, output: SchedulerOutput) -> None:
    """Lets the batch run a step in which every request that can samples token 7."""
    batch.apply(output)
    if output.num_scheduled_tokens:
        inputs = batch.prepare(output.num_scheduled_tokens)
        batch.commit(inputs, [[7]] * len(inputs.sampling_seqs))
