"""The engine core: a scheduler, a runner, and the step that joins them. One thread, no I/O.

It numbers requests, refuses those that could never finish, tells the record about the engine
itself, and counts. Where requests come from and where tokens go is its driver's business
(`engine.server.engine_process`, `engine.llm`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.admission import complaint_about
from engine.config import EngineConfig
from engine.connectors.worker import KVTransferWorker
from engine.request import Request, RequestTimes
from engine.runner import Runner
from engine.sampling import SamplingParams, StructuredOutputsParams
from engine.scheduler import PauseState, RequestOutput, Scheduler, SchedulerOutput
from engine.scheduler.integrity import IntegrityReport
from engine.scheduler.output import ModelRunnerOutput, StepOutputs
from engine.stats import EngineStats, StatsSnapshot
from engine.structured_output.bitmask import GrammarBitmask
from engine.structured_output.structured_outputs import StructuredOutputs
from telemetry.recorder import Recorder
from telemetry.records import Event, RequestArrived, RequestFinished
from telemetry.vocabulary import EventKind, FinishReason, Phase, SkipReason

SAVE_SECONDS = 1.0
"""How long the blocks of ended requests are waited for when the engine ends."""

TRANSFER_WAIT_SECONDS = 0.02
"""Pause between two steps while nothing but transfers is under way; the end of one ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request as its driver hands it in. Times are ns on the run's clock."""

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling: SamplingParams
    priority: int = 0
    adapter: str | None = None
    adapter_key: str | None = None
    received_ts: int | None = None
    tokenized_ts: int | None = None
    trace_id: str | None = None
    parent_span_id: str | None = None
    trace_sampled: bool | None = None


class EngineCore:
    """Runs requests to their ends, one step at a time.

    Args:
        clock: the run's, in ns since the Unix epoch; the recorder's too.
        eos_token_ids: tokens that end a text unless a request ignores them.
        structured_outputs: the grammars of its requests; None where none can be compiled.
        transfers: what moves KV from and to elsewhere, the runner's too; None without a connector.

    Invariants:
        Every request that was handed in leaves exactly one finished event in the record, and one
        `RequestOutput` with a finish reason unless its driver aborted it.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        *,
        recorder: Recorder,
        clock: Callable[[], int],
        model_name: str,
        eos_token_ids: Sequence[int] = (),
        structured_outputs: StructuredOutputs | None = None,
        transfers: KVTransferWorker | None = None,
    ) -> None:
        self.config = config
        self.transfers = transfers
        self.scheduler = Scheduler(
            config,
            recorder=recorder,
            clock=clock,
            connector=None if transfers is None else transfers.connector,
        )
        self.stats = EngineStats(config, clock())
        self.structured_outputs = structured_outputs or StructuredOutputs.without_a_model()
        self.num_steps = 0
        self._runner = runner
        self._recorder = recorder
        self._clock = clock
        self._model_name = model_name
        self._eos_token_ids = tuple(eos_token_ids)
        self._requests: dict[str, Request] = {}
        self._num_requests = 0

    # ------------------------------------------------------------------------- requests in, out

    def add_request(self, new: NewRequest, rejection: str | None = None) -> RequestOutput | None:
        """Queues a request; returns its end at once if it is refused, else None.

        Args:
            rejection: why its driver has no room for it now; it is only recorded then.
        """
        request = self._number(new)
        if rejection is not None:
            self.stats.num_admission_rejections += 1
        complaint = rejection or complaint_about(
            self.config, request.num_prompt_tokens, request.sampling.max_tokens
        )
        wanted = request.sampling.structured_outputs
        if complaint is None and wanted is not None:
            complaint = self.structured_outputs.complaint()
        if complaint is not None:
            return self._refuse(request, complaint)
        if wanted is not None:
            self._constrain(request, wanted)
        self._requests[request.request_id] = request
        self.scheduler.add_request(request)
        return None

    def refuse(self, new: NewRequest, complaint: str) -> RequestOutput:
        """Records a request that its driver cannot serve; returns its end."""
        return self._refuse(self._number(new), complaint)

    def adapters_in_use(self) -> frozenset[str]:
        """Returns the adapters of the requests that have not ended."""
        named = (request.adapter for request in self._requests.values())
        return frozenset(adapter for adapter in named if adapter is not None)

    def abort(self, request_ids: Iterable[str], reason: FinishReason) -> list[str]:
        """Ends requests from outside; ids that have ended already are passed over.

        Returns:
            The ids of those that ended by it.
        """
        ended = [self._requests[name] for name in request_ids if name in self._requests]
        if reason is FinishReason.abort_client:
            self._recorder.record_events([self._client_gone(request) for request in ended])
        self.scheduler.finish_requests([request.request_id for request in ended], reason)
        for request in ended:
            self._forget(request, reason)
        return [request.request_id for request in ended]

    def abort_all(self, reason: FinishReason) -> None:
        """Ends whatever has not ended, and hands over what the record still holds back."""
        self.abort(list(self._requests), reason)
        self.scheduler.journal.flush()

    def fail_all(self, error: str) -> None:
        """Writes the ends of whatever has not ended, after a step that failed half-way.

        The scheduler is left alone: what it holds is of no use any more.
        """
        now = self._clock()
        self.scheduler.settle()
        self._recorder.record_events(
            [
                RequestFinished(
                    step=self.num_steps,
                    ts=now,
                    request=request.number,
                    reason=FinishReason.error,
                    num_output_tokens=request.num_output_tokens,
                    num_computed_tokens=request.num_computed_tokens,
                    num_preemptions=request.num_preemptions,
                    text=error,
                )
                for request in self._requests.values()
            ]
        )
        self._requests.clear()

    def has_work(self) -> bool:
        """Whether a step has anything to do."""
        return self.scheduler.has_requests()

    @property
    def waits_for_transfers(self) -> bool:
        """Whether KV is on its way that somebody waits for, or a look-up is."""
        return self.transfers is not None and self.scheduler.waits_for_transfers

    @property
    def has_received_kv(self) -> bool:
        """Whether a request's KV has come that the next step may let in."""
        return self.scheduler.has_received_kv

    def wait_for_transfers(self) -> None:
        """Waits until a transfer has ended, and not for long: time-outs are looked at by steps."""
        if self.transfers is not None:
            self.transfers.wait(TRANSFER_WAIT_SECONDS)

    def save_what_is_left(self) -> None:
        """Steps until the blocks of requests that have ended are stored, at most a moment long."""
        until = time.monotonic() + SAVE_SECONDS
        while self.transfers and self.scheduler.kept and time.monotonic() < until:
            self.step()
            self.transfers.settle(SAVE_SECONDS)
            self.wait_for_transfers()
        self.scheduler.journal.flush()

    def close(self) -> None:
        """Ends what runs beside the steps; nothing may be asked of the engine afterwards."""
        if self.transfers is not None:
            self.transfers.close()

    @property
    def is_paused(self) -> bool:
        """Whether an operator holds requests back."""
        return self.scheduler.pause is not PauseState.UNPAUSED

    @property
    def waits_for_good(self) -> bool:
        """Whether there is a reason for a step that schedules nothing: a pause, or a grammar."""
        return self.is_paused or self.structured_outputs.is_compiling

    # --------------------------------------------------------------------------------- the step

    def step(self) -> tuple[SchedulerOutput, StepOutputs]:
        """Schedules, executes and takes in one step; returns what was decided and what came."""
        if self.structured_outputs.is_compiling:
            self.take_compiled_grammars()
        output = self.scheduler.schedule()
        bitmask = self._fill_bitmask(output) if output.structured_output_rows else None
        result = self._execute(output, bitmask)
        return output, self._update(output, result)

    def take_compiled_grammars(self, wait_seconds: float = 0.0) -> None:
        """Lets requests go on whose grammar is there, waiting so long for the first of them."""
        for name, error in self.structured_outputs.take_compiled(wait_seconds).items():
            self.scheduler.unblock(name, None if error is None else SkipReason.grammar_failed)

    def _fill_bitmask(self, output: SchedulerOutput) -> GrammarBitmask:
        self._recorder.enter_phase(output.step, Phase.bitmask)
        return self.structured_outputs.fill(output, self._requests)

    def _execute(
        self, output: SchedulerOutput, bitmask: GrammarBitmask | None
    ) -> ModelRunnerOutput:
        self._recorder.enter_phase(output.step, Phase.forward)
        result = self._runner.execute(output, bitmask)
        return result if bitmask is None else replace(result, bitmask_ns=bitmask.fill_ns)

    def _update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> StepOutputs:
        lost = self.structured_outputs.end_lost(self.scheduler)
        results = self.scheduler.update_from_output(output, result)
        self.structured_outputs.take_in(output, results, self._requests)
        results.others += lost + self.structured_outputs.end_lost(self.scheduler)
        if self.stats.drafts is not None:
            self.stats.drafts.verified(
                output.scheduled_spec_decode_tokens, result.sampled_token_ids
            )
        if result.draft_token_ids:
            self.scheduler.update_draft_token_ids(result.draft_token_ids)
        results.logprobs = result.logprobs
        self._recorder.enter_phase(output.step, Phase.output)
        self.num_steps = output.step + 1
        now = self._clock()
        told = list(results)  # once: going through columns makes an object of each
        self.stats.step_done(output, told, self._requests, now)
        for ended in told:
            if ended.finish_reason is not None:
                self._forget(self._requests[ended.request_id], ended.finish_reason)
        return StepOutputs(told)

    def snapshot(self) -> StatsSnapshot:
        """Returns the engine's numbers as they are now."""
        return self.stats.snapshot(self.scheduler, model_name=self._model_name, now=self._clock())

    def examine(self) -> IntegrityReport:
        """Returns whether the scheduler's books are right, down to the keys of held blocks.

        Meanwhile nothing is scheduled.
        """
        return self.scheduler.examine(deep=True)

    # ------------------------------------------------------------------------------- who may come

    def _number(self, new: NewRequest) -> Request:
        sampling = new.sampling
        if not sampling.ignore_eos and len(self._eos_token_ids) > 1:
            stop_token_ids = (*sampling.stop_token_ids, *self._eos_token_ids[1:])
            sampling = replace(sampling, stop_token_ids=stop_token_ids)
        now = self._clock()
        received = now if new.received_ts is None else new.received_ts
        request = Request(
            request_id=new.request_id,
            number=self._num_requests,
            prompt_token_ids=new.prompt_token_ids,
            sampling=sampling,
            arrival_time=received / 1e9,
            priority=new.priority,
            adapter=new.adapter,
            adapter_key=new.adapter_key,
            eos_token_id=self._eos_token_ids[0] if self._eos_token_ids else None,
            trace_id=new.trace_id,
            parent_span_id=new.parent_span_id,
            trace_sampled=new.trace_sampled,
            times=RequestTimes(received=new.received_ts, tokenized=new.tokenized_ts, arrived=now),
        )
        self._num_requests += 1
        return request

    def _constrain(self, request: Request, wanted: StructuredOutputsParams) -> None:
        """Gives a request its grammar, for which it may have to wait."""
        outputs = self.structured_outputs
        request.grammar, is_ready = outputs.grammar_for(request.request_id, wanted)
        if not is_ready:
            request.blocked_by = SkipReason.grammar_compiling

    def _refuse(self, request: Request, complaint: str) -> RequestOutput:
        now = self._clock()
        sampling = request.sampling
        self._recorder.record_events(
            [
                RequestArrived(
                    step=self.num_steps,
                    ts=now,
                    request=request.number,
                    request_id=request.request_id,
                    num_prompt_tokens=request.num_prompt_tokens,
                    max_tokens=sampling.max_tokens,
                    min_tokens=sampling.min_tokens,
                    ignore_eos=sampling.ignore_eos,
                    priority=request.priority,
                    arrival_time=request.arrival_time,
                    adapter=request.adapter,
                    received_ts=request.times.received,
                    tokenized_ts=request.times.tokenized,
                    trace_id=request.trace_id,
                    parent_span_id=request.parent_span_id,
                    trace_sampled=request.trace_sampled,
                ),
                RequestFinished(
                    step=self.num_steps,
                    ts=now,
                    request=request.number,
                    reason=FinishReason.refused,
                    text=complaint,
                ),
            ]
        )
        self.stats.finished(request, FinishReason.refused, now)
        return RequestOutput(
            request_id=request.request_id, finish_reason=FinishReason.refused, error=complaint
        )

    def _client_gone(self, request: Request) -> Event:
        return Event(
            kind=EventKind.client_gone,
            step=self.num_steps,
            ts=self._clock(),
            request=request.number,
        )

    def _forget(self, request: Request, reason: FinishReason) -> None:
        self.stats.finished(request, reason, self._clock())
        self.structured_outputs.forget(request)
        del self._requests[request.request_id]
