"""The V1 scheduler: every request's computed tokens catch up with its known tokens.

There is no prefill phase and no decode phase: a long prompt wants many tokens, a decoding request
one, and both draw on the same budget. Running requests are served first; where KV blocks are short
one of them is preempted (its blocks are freed, its progress is lost, it waits again); if nobody
was, waiting requests are admitted.

Source: `vllm/v1/core/sched/scheduler.py` is the reference for every order and limit here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple

from engine.config import EngineConfig
from engine.kv_cache import KVCacheManager, PrefixCacheStats, Shortage
from engine.request import Request, RequestStatus
from engine.scheduler.journal import StepJournal
from engine.scheduler.output import ModelRunnerOutput, RequestOutput, SchedulerOutput
from engine.scheduler.plan import AdmissionStop, Grant, StepPlan
from engine.scheduler.queues import RequestQueue, choose_victim, make_queue
from engine.scheduler.stopping import stop_after
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock
from telemetry.vocabulary import FinishReason, SkipReason, StopReason, ZeroReason


class Scheduler:
    """Decides each step, and takes in what the step brought.

    One thread drives it: `schedule()`, then `update_from_output()` of the same step. Requests are
    added and ended between the two calls of a step or between steps.

    Invariants:
        A request is in exactly one of `running`, `waiting`, `kv_holding_waiting`.
        `num_preemptions` counts every loss of blocks, whether or not it could be recorded.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        recorder: Recorder | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.config = config
        self._limits = config.scheduler
        self._clock = clock if clock is not None else RunClock.start().now
        self.kv = KVCacheManager(
            num_blocks=config.cache.num_gpu_blocks,
            block_size=config.cache.block_size,
            max_model_len=config.scheduler.max_model_len,
            enable_caching=config.cache.enable_prefix_caching,
            reserve_full_prompt=config.scheduler.scheduler_reserve_full_isl,
            watermark_blocks=config.watermark_blocks,
        )
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: RequestQueue = make_queue(config.scheduler.policy)
        self.kv_holding_waiting: RequestQueue = make_queue(config.scheduler.policy)
        self.skipped: set[Request] = set()
        self.num_preemptions = 0
        self.prefix_cache_stats = PrefixCacheStats()
        self._num_steps = 0
        self._finished_ids: set[str] = set()
        self._preempted_ids: set[str] = set()
        self._errors: list[Request] = []
        self._journal = StepJournal(recorder or NullRecorder(), self._clock, self)

    # ------------------------------------------------------------------------- requests in, out

    def add_request(self, request: Request) -> None:
        """Queues a request.

        Raises:
            ValueError: a request with this id is here already.
        """
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use: choose another")
        self.requests[request.request_id] = request
        self.waiting.add(request)
        self._journal.arrived(request)
        if request.blocked_by is not None:
            self._set_aside(request, request.blocked_by)

    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason) -> None:
        """Ends requests from outside; ids that are not here are passed over."""
        ended = [self.requests[i] for i in request_ids if i in self.requests]
        if not ended:
            return
        gone = set(ended)
        self.running = [request for request in self.running if request not in gone]
        self.waiting.remove(gone)
        self.kv_holding_waiting.remove(gone)
        for request in dict.fromkeys(ended):
            self._end(request, reason)
        self._journal.publish_between_steps()

    def unblock(self, request_id: str, failure: SkipReason | None = None) -> None:
        """Says that what a request waited for outside has come; or, with `failure`, never will."""
        request = self.requests.get(request_id)
        if request is not None:
            request.blocked_by = failure

    def has_requests(self) -> bool:
        """Whether a step has anything to do, be it to tell the runner who has ended."""
        return bool(self.requests) or bool(self._finished_ids)

    def reset_prefix_cache(self, *, reset_running: bool = False) -> bool:
        """Empties the prefix cache; returns False while blocks are in use.

        With `reset_running` all running requests are preempted first, and resume in the next step.
        """
        if reset_running:
            while self.running:
                self._preempt(self.running[-1], beneficiary=None, plan=None)
        done = self.kv.reset_prefix_cache()
        self._journal.cache_reset(done)
        return done

    def take_prefix_cache_stats(self) -> tuple[int, ...]:
        """Returns the look-ups since the last call, as `PrefixCacheStats` lists them."""
        stats, self.prefix_cache_stats = self.prefix_cache_stats, PrefixCacheStats()
        return astuple(stats)

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait, for whatever reason."""
        return len(self.waiting) + len(self.kv_holding_waiting)

    # --------------------------------------------------------------------------------- the step

    def schedule(self) -> SchedulerOutput:
        """Decides the next step."""
        plan = self._begin_step()
        self._schedule_running(plan)
        plan.stop = self._admit_waiting(plan)
        return self._finish_schedule(plan)

    def update_from_output(
        self, output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> list[RequestOutput]:
        """Takes in a step's tokens: appends them, ends who is done, records the step.

        Returns:
            New tokens and ends, in scheduling order; errors last.
        """
        self._journal.begin_update()
        results = [
            self._take_tokens(request, runner_output.sampled_token_ids[request_id])
            for request_id in output.num_scheduled_tokens
            if request_id in runner_output.sampled_token_ids
            and (request := self.requests.get(request_id)) is not None
            and request.status is RequestStatus.RUNNING
        ]
        if any(result.finish_reason is not None for result in results):
            self.running = [request for request in self.running if not request.is_finished]
        results += self._end_failed()
        self._journal.finish_step(runner_output)
        return results

    def check_integrity(self) -> None:
        """Raises AssertionError unless queues, requests, blocks and cache agree."""
        self.kv.check_integrity()
        places = [*self.running, *self.waiting, *self.kv_holding_waiting]
        assert len(places) == len(set(places)) == len(self.requests), "a request is lost or twice"
        for request in self.requests.values():
            assert 0 <= request.num_computed_tokens <= request.num_tokens, "computed beyond known"
            held = self.kv.num_blocks_held(request)
            assert held * self.kv.block_size >= request.num_computed_tokens, "computed without KV"

    # --------------------------------------------------------------------- schedule(), step by step

    def _begin_step(self) -> StepPlan:
        limits = self._limits
        cap = None
        num_requests = len(self.running) + self.num_waiting
        if limits.long_prefill_token_threshold > 0 and num_requests >= 2:
            cap = limits.long_prefill_token_threshold
            if limits.long_prefill_token_threshold_adaptive:
                cap = max(cap, limits.max_num_batched_tokens // num_requests)
        plan = StepPlan(
            step=self._num_steps,
            started_ts=self._clock(),
            full_budget=limits.scheduled_tokens,
            token_budget=limits.scheduled_tokens,
            token_cap=cap,
        )
        self._journal.begin_step(plan)
        self._num_steps += 1
        return plan

    def _schedule_running(self, plan: StepPlan) -> None:
        """Serves the running list in its order, until the budget or the blocks run out."""
        index = 0
        while index < len(self.running) and plan.token_budget > 0:
            request = self.running[index]
            num_wanted = request.num_tokens - request.num_computed_tokens
            room = self._limits.max_model_len - 1 - request.num_computed_tokens
            num_tokens = min(plan.capped(num_wanted), plan.token_budget, room)
            if num_tokens <= 0:
                plan.gave_nothing(request, num_wanted, ZeroReason.max_model_len)
                index += 1
                continue
            new_blocks = self._extend_or_preempt(request, num_tokens, plan)
            if new_blocks is None:
                break
            plan.give(Grant(request, num_wanted, num_tokens, new_blocks))
            index = self.running.index(request, max(0, index - len(plan.preempted))) + 1
        self._note_unserved(plan, index)

    def _extend_or_preempt(
        self, request: Request, num_tokens: int, plan: StepPlan
    ) -> list[int] | None:
        """Finds blocks for a running request, preempting until they suffice.

        Returns None when the request had to go itself.
        """
        while (new_blocks := self.kv.extend(request, num_tokens)) is None:
            victim = choose_victim(self._limits.policy, self.running)
            needed = self.kv.num_blocks_missing(request, num_tokens)
            self._preempt(victim, beneficiary=request, plan=plan, num_blocks_needed=needed)
            if victim is request:
                return None
        self._journal.beneficiary_allocated(request)
        return new_blocks

    def _note_unserved(self, plan: StepPlan, index: int) -> None:
        """Gives everybody that the running scan did not reach a reason."""
        reason = ZeroReason.token_budget if plan.token_budget <= 0 else ZeroReason.behind_preempted
        for request in self.running[index:]:
            num_wanted = request.num_tokens - request.num_computed_tokens
            plan.gave_nothing(request, num_wanted, reason)

    def _admit_waiting(self, plan: StepPlan) -> AdmissionStop:
        """Lets waiting requests in, until one limit ends the scan.

        Who cannot run for a reason of its own is set aside and the scan goes on; who does not fit
        ends it for all behind.
        """
        set_aside: list[tuple[RequestQueue, Request]] = []
        adapters = plan.adapters()
        while (stop := self._admission_limit(plan)) is None:
            queue = self._head_queue()
            request = queue.pop()
            skip = self._skip_reason(request, adapters)
            if skip is SkipReason.grammar_failed:
                self._errors.append(request)
            if skip is not None:
                self._set_aside(request, skip)
                set_aside.append((queue, request))
                continue
            stop = self._admit(request, plan)
            if stop is not None:
                queue.put_back(request)
                break
            if request.adapter is not None:
                adapters.add(request.adapter)
        for queue, request in reversed(set_aside):
            queue.put_back(request)
        return stop

    def _admission_limit(self, plan: StepPlan) -> AdmissionStop | None:
        """Returns the limit that keeps the next one out whoever it is; None if there is none."""
        head = self._head_queue().peek()
        if head is None:
            return AdmissionStop(StopReason.queue_empty)
        if plan.preempted:
            return AdmissionStop(StopReason.preempted_this_step)
        if plan.token_budget <= 0:
            return AdmissionStop(StopReason.token_budget, head)
        if len(self.running) >= self._limits.active_seqs:
            if self._limits.active_seqs < self._limits.max_num_seqs:
                return AdmissionStop(StopReason.max_num_active_seqs, head)
            return AdmissionStop(StopReason.max_num_seqs, head)
        return None

    def _head_queue(self) -> RequestQueue:
        """Returns the queue whose head is next: who holds blocks already goes first."""
        return self.kv_holding_waiting if len(self.kv_holding_waiting) else self.waiting

    def _skip_reason(self, request: Request, adapters: set[str]) -> SkipReason | None:
        """Returns why a request is set aside while others go on; None if it may run."""
        if request.blocked_by is not None:
            return request.blocked_by
        limit = self._limits.max_loras
        if limit is None or request.adapter is None or request.adapter in adapters:
            return None
        return SkipReason.lora_slots if len(adapters) >= limit else None

    def _set_aside(self, request: Request, reason: SkipReason) -> None:
        """Notes why a waiting request is passed over; it counts as skipped until it is admitted."""
        if request.skipped_for is not reason:
            request.skipped_for = reason
            self.skipped.add(request)
            self._journal.skipped(request, reason)

    def _admit(self, request: Request, plan: StepPlan) -> AdmissionStop | None:
        """Moves a request to the running list with its first chunk, or says what keeps it out."""
        hits = self.kv.find_hits(request)
        num_hit_tokens = len(hits) * self.kv.block_size
        num_wanted = request.num_tokens - num_hit_tokens
        num_tokens = plan.capped(num_wanted)
        if num_tokens > plan.token_budget and not self._limits.enable_chunked_prefill:
            return AdmissionStop(StopReason.chunked_prefill_disabled, request)
        num_tokens = min(num_tokens, plan.token_budget)
        shortage = self.kv.admit(request, hits, num_tokens, spare_watermark=bool(self.running))
        if isinstance(shortage, Shortage):
            return AdmissionStop(shortage.reason, request, shortage.num_blocks_needed)
        if self.kv.looks_up(request):
            self.prefix_cache_stats.count(request, num_hit_tokens)
        self._enter_running(request, num_hit_tokens, plan)
        plan.num_hit_tokens[request.request_id] = num_hit_tokens
        plan.give(Grant(request, num_wanted, num_tokens, self.kv.block_ids(request)))
        self._journal.admitted(request, plan)
        return None

    def _enter_running(self, request: Request, num_computed_tokens: int, plan: StepPlan) -> None:
        resumed = request.status is RequestStatus.PREEMPTED
        (plan.resumed if resumed else plan.admitted).append(request)
        request.is_catching_up = resumed
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_computed_tokens
        request.skipped_for = None
        self.skipped.discard(request)
        self.running.append(request)

    def _finish_schedule(self, plan: StepPlan) -> SchedulerOutput:
        """Advances everybody's computed tokens and tells the runner what has changed."""
        output = SchedulerOutput(
            step=plan.step,
            scheduled_new_reqs=plan.new_requests(),
            scheduled_cached_reqs=plan.known_requests(),
            num_scheduled_tokens={name: grant.num_tokens for name, grant in plan.grants.items()},
            total_num_scheduled_tokens=plan.full_budget - plan.token_budget,
            finished_req_ids=frozenset(self._finished_ids),
            preempted_req_ids=frozenset(self._preempted_ids),
            num_prefix_hit_tokens=plan.num_hit_tokens,
        )
        self._finished_ids, self._preempted_ids = set(), set()
        self._journal.scheduled(plan)
        for grant in plan.grants.values():
            grant.request.num_computed_tokens += grant.num_tokens
        return output

    # ------------------------------------------------------------------- what happens to a request

    def _preempt(
        self,
        victim: Request,
        *,
        beneficiary: Request | None,
        plan: StepPlan | None,
        num_blocks_needed: int | None = None,
    ) -> None:
        """Throws a running request out: it loses its blocks and its progress, keeps its outputs.

        What it was given in this step goes back to the budget. `beneficiary` is None for a reset
        of the prefix cache.
        """
        withdrawn = plan.withdraw(victim) if plan is not None else None
        self.running.remove(victim)
        free_before = self.kv.pool.num_free
        num_freed = self.kv.release(victim, uncache_from=victim.num_computed_tokens)
        self._journal.preempted(
            victim,
            beneficiary,
            num_blocks_needed=num_blocks_needed,
            num_blocks_free_before=free_before,
            num_blocks_freed=num_freed,
            withdrawn=withdrawn,
        )
        victim.high_water_mark = max(victim.high_water_mark, victim.num_computed_tokens)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = RequestStatus.PREEMPTED
        self.num_preemptions += 1
        self._preempted_ids.add(victim.request_id)
        self.waiting.put_back(victim)
        if plan is not None:
            plan.preempted.append(victim)

    def _take_tokens(self, request: Request, token_ids: list[int]) -> RequestOutput:
        """Appends a request's new tokens up to the one that ends it."""
        kept: list[int] = []
        reason = None
        for token_id in token_ids:
            request.token_ids.append(token_id)
            kept.append(token_id)
            reason = stop_after(request, token_id, self._limits.max_model_len)
            if reason is not None:
                break
        self._journal.got_tokens(request)
        if reason is not None:
            self._end(request, reason)
        return RequestOutput(
            request_id=request.request_id, new_token_ids=tuple(kept), finish_reason=reason
        )

    def _end_failed(self) -> list[RequestOutput]:
        """Ends the requests whose grammar was found to have failed in this step."""
        failed = [request for request in self._errors if not request.is_finished]
        self._errors = []
        if not failed:
            return []
        self.waiting.remove(failed)
        for request in failed:
            self._end(request, FinishReason.error)
        return [
            RequestOutput(
                request_id=request.request_id,
                finish_reason=FinishReason.error,
                error="the grammar could not be compiled",
            )
            for request in failed
        ]

    def _end(self, request: Request, reason: FinishReason) -> None:
        """Ends a request for good: its blocks go back, the runner is told in the next step."""
        self.kv.release(request)
        self.kv.forget(request)
        self.skipped.discard(request)
        self._journal.finished(request, reason)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self.requests[request.request_id]
        self._finished_ids.add(request.request_id)
