"""The V1 scheduler: every request's computed tokens catch up with its known tokens.

There is no prefill phase and no decode phase: a long prompt wants many tokens, a decoding request
one, and both draw on the same budget. Running requests are served first; where KV blocks are short
one of them is preempted (its blocks are freed, its progress is lost, it waits again); if nobody
was, waiting requests are admitted.

Source: `vllm/v1/core/sched/scheduler.py` is the reference for every order and limit here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.request import Request, RequestStatus, StaleOutput
from engine.scheduler.async_output import expect_output
from engine.scheduler.encoder_inputs import let_go_of_all, let_go_of_passed
from engine.scheduler.kv_loads import free_at_end, receive, release_deferred, take_failures
from engine.scheduler.output import ModelRunnerOutput, RequestOutput, SchedulerOutput
from engine.scheduler.plan import StepPlan
from engine.scheduler.preemption import preempt
from engine.scheduler.running_scan import serve_running
from engine.scheduler.state import PauseState, SchedulerState
from engine.scheduler.stopping import stop_after
from engine.scheduler.turns import begin_turn, end_turn, session_of, waits_for_input
from engine.scheduler.waiting_scan import admit_waiting
from engine.session import SessionInput
from telemetry.vocabulary import FinishReason, SkipReason


class Scheduler(SchedulerState):
    """Decides each step, and takes in what the step brought.

    One thread drives it: `schedule()`, then `update_from_output()` of the same step; with
    asynchronous scheduling of the step before. Requests are added and ended at any time between.
    """

    # --------------------------------------------------------------------------------- the step

    def schedule(self, *, throttle_prefills: bool = False) -> SchedulerOutput:
        """Decides the next step. `throttle_prefills` lets decodes go first, where that helps."""
        plan = self._begin_step(throttle_prefills)
        serve_running(self, plan)
        plan.stop = admit_waiting(self, plan)
        return self._finish_schedule(plan)

    def update_from_output(
        self, output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> list[RequestOutput]:
        """Takes in a step's tokens: appends them, ends who is done, records the step.

        Returns:
            New tokens and ends, in scheduling order; errors last.
        """
        self.journal.begin_update(output.step)
        release_deferred(self, output.step)
        void = take_failures(self, output, runner_output)
        results = [
            self._take_tokens(request, runner_output.sampled_token_ids[request.request_id], output)
            for request in self._take_arrivals(output)
            if request.request_id in runner_output.sampled_token_ids and request not in void
        ]
        if any(result.finish_reason is not None for result in results):
            self.running = [r for r in self.running if r.status is RequestStatus.RUNNING]
        results += self._end_failed()
        if self.encoder_cache is not None:
            self._let_go_of_passed_items(output)
        receive(self, runner_output)
        self.journal.finish_step(output.step, runner_output)
        return results

    def update_draft_token_ids(self, drafts: Mapping[str, list[int]]) -> None:
        """Takes new drafts; those of requests in mid-prefill, and of unknown ones, are ignored."""
        for request_id, token_ids in drafts.items():
            request = self.requests.get(request_id)
            if request is None:
                continue
            kept = [] if request.is_prefill_chunk else list(token_ids)
            if request.grammar is not None:
                kept = request.grammar.accepted_prefix(kept)
            request.draft_token_ids = kept

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
        self.journal.arrived(request)
        if request.blocked_by is not None:
            self.set_aside(request, request.blocked_by)

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
        self.journal.publish_between_steps()

    def add_session_input(self, request_id: str, piece: SessionInput) -> None:
        """Gives a session its next piece of input, now or when its turn is over.

        Raises:
            ValueError: there is no such session, or it has been closed.
        """
        request, session = session_of(self, request_id)
        if session.is_closed:
            raise ValueError(f"session {request_id!r} has been closed: open a new one")
        if waits_for_input(request):
            begin_turn(self, request, piece)
        else:
            session.queued.append(piece)

    def close_session(self, request_id: str) -> None:
        """Ends a session, now or when its turn is over.

        Raises:
            ValueError: there is no such session.
        """
        request, session = session_of(self, request_id)
        session.is_closed = True
        if waits_for_input(request):
            self.finish_requests([request_id], FinishReason.stop)

    def unblock(self, request_id: str, failure: SkipReason | None = None) -> None:
        """Says that what a request waited for outside has come; or, with `failure`, never will."""
        request = self.requests.get(request_id)
        if request is not None:
            request.blocked_by = failure

    def set_pause(self, pause: PauseState) -> None:
        """Pauses or unpauses the engine; the next step obeys."""
        if pause is not self.pause:
            self.pause = pause
            self.journal.pause_changed(pause)

    def reset_prefix_cache(self, *, reset_running: bool = False) -> bool:
        """Empties the prefix cache; returns False while blocks are in use.

        With `reset_running` all running requests are preempted first, and resume in the next step.
        """
        if reset_running:
            while self.running:
                preempt(self, self.running[-1], beneficiary=None, plan=None)
        done = self.kv.reset_prefix_cache()
        self.journal.cache_reset(done)
        return done

    def reset_encoder_cache(self) -> None:
        """Forgets all encoder outputs."""
        if self.encoder_cache is not None:
            self.encoder_cache.reset()
            self.journal.encoder_cache_reset()

    # --------------------------------------------------------------------- the frame of schedule()

    def _begin_step(self, throttle_prefills: bool) -> StepPlan:
        limits, config = self.limits, self.config
        budget = 0 if self.pause is PauseState.PAUSED_ALL else limits.scheduled_tokens
        cap = None
        num_requests = len(self.running) + self.num_waiting
        if limits.long_prefill_token_threshold > 0 and num_requests >= 2:
            cap = limits.long_prefill_token_threshold
            if limits.long_prefill_token_threshold_adaptive:
                cap = max(cap, limits.max_num_batched_tokens // num_requests)
        plan = StepPlan(
            step=self.num_steps,
            started_ts=self.clock(),
            full_budget=budget,
            token_budget=budget,
            token_cap=cap,
            encoder_budget=0 if config.encoder is None else config.encoder.compute_budget,
            defers_prefills=throttle_prefills
            and not self.left_ready_waiting
            and any(not request.is_prefill_chunk for request in self.running),
        )
        self.journal.begin_step(plan)
        self.num_steps += 1
        return plan

    def _finish_schedule(self, plan: StepPlan) -> SchedulerOutput:
        """Advances everybody's computed tokens and tells the runner what has changed."""
        grants = plan.grants
        evicted = () if self.encoder_cache is None else tuple(self.encoder_cache.take_evicted())
        output = SchedulerOutput(
            step=plan.step,
            scheduled_new_reqs=plan.new_requests(),
            scheduled_cached_reqs=plan.known_requests(),
            num_scheduled_tokens={name: grant.num_tokens for name, grant in grants.items()},
            total_num_scheduled_tokens=plan.full_budget - plan.token_budget,
            scheduled_spec_decode_tokens={
                name: grant.drafts for name, grant in grants.items() if grant.drafts
            },
            scheduled_encoder_inputs={
                name: grant.encoder_items for name, grant in grants.items() if grant.encoder_items
            },
            free_encoder_mm_hashes=evicted,
            finished_req_ids=frozenset(self.finished_ids),
            preempted_req_ids=frozenset(self.preempted_ids),
            preempted_in_order=tuple(request.request_id for request in plan.preempted),
            num_prefix_hit_tokens=plan.num_hit_tokens,
            num_external_tokens=plan.num_external_tokens,
            kv_loads_started=plan.loads_started,
        )
        self.finished_ids, self.preempted_ids = set(), set()
        if grants:
            self.last_busy_step = plan.step
        self.journal.evicted(evicted)
        self.journal.scheduled(plan)
        for grant in grants.values():
            request = grant.request
            request.num_computed_tokens += grant.num_tokens
            known = request.num_tokens + request.num_output_placeholders
            request.is_prefill_chunk = request.num_computed_tokens < known
            if not request.is_prefill_chunk:
                self.reserving.discard(request)
            if self.limits.async_scheduling:
                expect_output(grant, plan.step, self.config.speculation.num_speculative_tokens)
        return output

    # ------------------------------------------------------------------- what an update brings

    def _take_arrivals(self, output: SchedulerOutput) -> list[Request]:
        """Returns the requests of a step that still want its output, in scheduling order."""
        requests = [self.requests.get(name) for name in output.num_scheduled_tokens]
        if not self.limits.async_scheduling:
            return [r for r in requests if r is not None and r.status is RequestStatus.RUNNING]
        arrivals = []
        for request in requests:
            if request is None or request.in_flight.pop(output.step, None) is None:
                continue
            if request.stale.get(output.step) is StaleOutput.DROPPED:
                del request.stale[output.step]
                continue
            arrivals.append(request)
        return arrivals

    def _settle_drafts(
        self, request: Request, num_drafts: int, num_accepted: int, *, is_stale: bool
    ) -> None:
        """Counts rejected drafts as not computed, unless all was lost with an eviction since."""
        num_rejected = 0 if is_stale else num_drafts - num_accepted
        request.num_computed_tokens -= num_rejected
        if self.limits.async_scheduling:
            request.num_output_placeholders -= num_rejected
        self.speculation_stats.count(num_drafts, num_accepted)
        self.journal.verified(request, num_drafts, num_accepted)

    def _take_tokens(
        self, request: Request, token_ids: list[int], output: SchedulerOutput
    ) -> RequestOutput:
        """Appends a request's new tokens up to the one that ends it; forgets rejected drafts."""
        is_stale = request.stale.pop(output.step, None) is not None
        num_drafts = len(output.scheduled_spec_decode_tokens.get(request.request_id, ()))
        if num_drafts:
            self._settle_drafts(request, num_drafts, len(token_ids) - 1, is_stale=is_stale)
        kept: list[int] = []
        reason = None
        for token_id in token_ids:
            request.token_ids.append(token_id)
            kept.append(token_id)
            reason = stop_after(request, token_id, self.limits.max_model_len)
            if reason is not None:
                break
        self.journal.got_tokens(request)
        if self.limits.async_scheduling and not is_stale:
            request.num_output_placeholders -= len(kept)
            self.kv.enter_computed(request)
        session = request.session
        is_turn = reason is not None and session is not None and end_turn(self, request, session)
        if reason is not None and not is_turn:
            self._end(request, reason)
        return RequestOutput(
            request_id=request.request_id,
            new_token_ids=tuple(kept),
            finish_reason=reason,
            is_turn=is_turn,
        )

    def _end_failed(self) -> list[RequestOutput]:
        """Ends the requests that were found to have failed in this step."""
        failed, self.failed = self.failed, {}
        failed = {request: why for request, why in failed.items() if not request.is_finished}
        if not failed:
            return []
        self.running = [request for request in self.running if request not in failed]
        self.waiting.remove(failed)
        self.kv_holding_waiting.remove(failed)
        results = []
        for request, why in failed.items():
            self._end(request, FinishReason.error)
            results.append(
                RequestOutput(
                    request_id=request.request_id, finish_reason=FinishReason.error, error=why
                )
            )
        return results

    def _let_go_of_passed_items(self, output: SchedulerOutput) -> None:
        """Drops the encoder references that nobody will need again."""
        lookahead = self.config.speculation.prefill_lookahead
        for request_id in output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is not None:
                let_go_of_passed(self.encoder_cache, request, lookahead)

    def _end(self, request: Request, reason: FinishReason) -> None:
        """Ends a request for good: its blocks go back, the runner is told in the next step."""
        if request.status is RequestStatus.PREEMPTED:  # its last token came after its eviction
            self.waiting.remove([request])
        free_at_end(self, request)
        self.reserving.discard(request)
        let_go_of_all(self.encoder_cache, request)
        self.skipped.discard(request)
        self.journal.finished(request, reason)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        del self.requests[request.request_id]
        self.finished_ids.add(request.request_id)
