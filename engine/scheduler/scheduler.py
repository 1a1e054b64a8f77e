"""The V1 scheduler: every request's computed tokens catch up with its known tokens.

There is no prefill phase and no decode phase: a long prompt wants many tokens, a decoding request
one, and both draw on the same budget. Running requests are served first; where KV blocks are short
one of them is preempted (its blocks are freed, its progress is lost, it waits again); if nobody
was, waiting requests are admitted.

Source: `vllm/v1/core/sched/scheduler.py` is the reference for every order and limit here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from engine.request import Request
from engine.scheduler.async_output import expect_output
from engine.scheduler.encoder_loads import receive_items
from engine.scheduler.ending import end_failed, end_from_outside
from engine.scheduler.jump_decoding import append_known, request_to_extend
from engine.scheduler.kv_loads import receive, release_deferred, take_failures
from engine.scheduler.load_deadlines import check_deadlines
from engine.scheduler.new_tokens import take_tokens
from engine.scheduler.output import (
    ModelRunnerOutput,
    RequestOutput,
    SchedulerOutput,
    StepOutputs,
)
from engine.scheduler.plan import StepPlan
from engine.scheduler.preemption import preempt
from engine.scheduler.running_scan import serve_running
from engine.scheduler.state import PauseState, SchedulerState
from engine.scheduler.telling import tell_runner
from engine.scheduler.turns import begin_turn, session_of, waits_for_input
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
        if self.connector is not None:
            check_deadlines(self, plan.started_ts)
        serve_running(self, plan)
        plan.stop = admit_waiting(self, plan)
        return self._finish_schedule(plan)

    def update_from_output(
        self, output: SchedulerOutput, runner_output: ModelRunnerOutput
    ) -> StepOutputs:
        """Takes in a step's tokens: appends them, ends who is done, records the step.

        Returns:
            New tokens and ends, in scheduling order; errors last.
        """
        self.journal.begin_update(output.step)
        self.executing = {}
        void: Collection[Request] = ()
        if self.connector is not None:
            release_deferred(self, output.step)
            void = take_failures(self, output, runner_output)
        results = take_tokens(self, output, runner_output, void)
        results.others += end_failed(self)
        if self.connector is not None:
            receive(self, runner_output)
        if self.ec_connector is not None:
            receive_items(self, runner_output)
        self.journal.finish_step(output.step, runner_output)
        return results

    def update_draft_token_ids(self, drafts: Mapping[str, list[int]]) -> None:
        """Takes new drafts; those of requests in mid-prefill, and of unknown ones, are ignored."""
        proposed: dict[Request, int] = {}
        for request_id, token_ids in drafts.items():
            request = self.requests.get(request_id)
            if request is None:
                continue
            kept = [] if request.is_prefill_chunk else list(token_ids)
            if request.grammar is not None:
                kept = request.grammar.accepted_prefix(kept)
            if kept and request.slot is not None:
                self.decodes.keep_first(self.decodes.row_of(request))
            request.draft_token_ids = kept
            proposed[request] = len(kept)
        self.journal.drafts_proposed(proposed)

    def append_known_tokens(self, request_id: str, token_ids: Sequence[int]) -> RequestOutput:
        """Appends outputs that are known without being sampled; see `jump_decoding`.

        Between the update that brought the request's last token and the next `schedule()`.

        Returns:
            The tokens that count, and the request's end if one of them brings it.

        Raises:
            ValueError: the request is not here, is a session, or has a token on its way.
        """
        request = request_to_extend(self, request_id)
        kept, reason = append_known(request, token_ids, self.limits.max_model_len)
        self.journal.tokens_appended(request, len(kept))
        if reason is not None:
            self.finish_requests([request_id], reason)
        return RequestOutput(request_id=request_id, new_token_ids=tuple(kept), finish_reason=reason)

    # ------------------------------------------------------------------------- requests in, out

    def add_request(self, request: Request) -> None:
        """Queues a request.

        Raises:
            ValueError: a request with this id is here already, or a transfer of its KV is.
        """
        name = request.request_id
        if name in self.requests or self.transfers.involve(name):
            raise ValueError(f"request id {name!r} is in use: choose another")
        self.requests[request.request_id] = request
        self.waiting.add(request)
        self.kv.learn(request)
        self.journal.arrived(request)
        if request.blocked_by is not None:
            self.set_aside(request, request.blocked_by)

    def finish_requests(self, request_ids: Iterable[str], reason: FinishReason) -> None:
        """Ends requests from outside; ids that are not here are passed over."""
        ended = [self.requests[i] for i in request_ids if i in self.requests]
        if ended:
            end_from_outside(self, ended, reason)
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
        if request is not None and request.blocked_by is not failure:
            self.journal.unblocked(request, failure)
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
        plan = StepPlan(
            step=self.num_steps,
            started_ts=self.clock(),
            full_budget=budget,
            token_budget=budget,
            token_cap=self._token_cap() if limits.long_prefill_token_threshold else None,
            encoder_budget=0 if config.encoder is None else config.encoder.compute_budget,
            defers_prefills=throttle_prefills
            and not self.left_ready_waiting
            and not all(request.is_prefill_chunk for request in self.running),
        )
        plan.is_throttled = plan.defers_prefills if throttle_prefills else None
        self.journal.begin_step(plan)
        self.num_steps += 1
        return plan

    def _token_cap(self) -> int | None:
        """Returns what one request may get at most while there are others; None for no limit."""
        limits = self.limits
        cap = limits.long_prefill_token_threshold
        num_requests = len(self.running) + self.num_waiting
        if num_requests < 2:
            return None
        if limits.long_prefill_token_threshold_adaptive:
            return max(cap, limits.max_num_batched_tokens // num_requests)
        return cap

    def _finish_schedule(self, plan: StepPlan) -> SchedulerOutput:
        """Advances everybody's computed tokens and tells the runner what has changed."""
        output = tell_runner(self, plan)
        grants = plan.grants
        if grants or plan.decodes is not None:
            self.last_busy_step = plan.step
        if output.free_encoder_mm_hashes:
            self.journal.evicted(output.free_encoder_mm_hashes)
        self.journal.scheduled(plan)
        if plan.decodes is not None:
            self.decodes.scheduled(plan.step)
        for grant in grants.values():
            request = grant.request
            request.num_computed_tokens += grant.num_tokens
            known = request.num_tokens + request.num_output_placeholders
            request.is_prefill_chunk = request.num_computed_tokens < known
            if not request.is_prefill_chunk:
                self.reserving.discard(request)
            if self.limits.max_concurrent_batches > 1:
                expect_output(grant, plan.step, self.config)
        if self.connector is not None and self.limits.max_concurrent_batches == 1:
            self.executing = {name: grant.num_tokens for name, grant in grants.items()}
        return output
