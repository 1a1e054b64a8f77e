"""The engine core: a scheduler, a runner, and the step that joins them. One thread, no I/O.

It numbers requests, refuses those that could never finish, tells the record about the engine
itself, and counts. Where requests come from and where tokens go is its driver's business
(`engine.server.engine_process`, `engine.llm`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from engine.admission import complaint_about
from engine.config import EngineConfig
from engine.request import Request, RequestTimes
from engine.runner import Runner
from engine.sampling import SamplingParams
from engine.scheduler import RequestOutput, Scheduler, SchedulerOutput
from engine.scheduler.integrity import IntegrityReport
from engine.scheduler.output import ModelRunnerOutput, StepOutputs
from engine.stats import EngineStats, StatsSnapshot
from telemetry.recorder import Recorder
from telemetry.records import Event, RequestArrived, RequestFinished
from telemetry.vocabulary import EventKind, FinishReason, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request as its driver hands it in. Times are ns on the run's clock."""

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling: SamplingParams
    priority: int = 0
    adapter: str | None = None
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
    ) -> None:
        self.config = config
        self.scheduler = Scheduler(config, recorder=recorder, clock=clock)
        self.stats = EngineStats(config, clock())
        self.num_steps = 0
        self._runner = runner
        self._recorder = recorder
        self._clock = clock
        self._model_name = model_name
        self._eos_token_ids = tuple(eos_token_ids)
        self._requests: dict[str, Request] = {}
        self._num_requests = 0

    # ------------------------------------------------------------------------- requests in, out

    def add_request(self, new: NewRequest) -> RequestOutput | None:
        """Queues a request; returns its end at once if it is refused, else None."""
        request = self._number(new)
        complaint = complaint_about(
            self.config, request.num_prompt_tokens, request.sampling.max_tokens
        )
        if complaint is not None:
            return self._refuse(request, complaint)
        self._requests[request.request_id] = request
        self.scheduler.add_request(request)
        return None

    def abort(self, request_ids: Iterable[str], reason: FinishReason) -> None:
        """Ends requests from outside; ids that have ended already are passed over."""
        ended = [self._requests[name] for name in request_ids if name in self._requests]
        if reason is FinishReason.abort_client:
            self._recorder.record_events([self._client_gone(request) for request in ended])
        self.scheduler.finish_requests([request.request_id for request in ended], reason)
        for request in ended:
            self._forget(request, reason)

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

    # --------------------------------------------------------------------------------- the step

    def step(self) -> tuple[SchedulerOutput, StepOutputs]:
        """Schedules, executes and takes in one step; returns what was decided and what came."""
        output = self.scheduler.schedule()
        result = self._execute(output)
        return output, self._update(output, result)

    def _execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        self._recorder.enter_phase(output.step, Phase.forward)
        return self._runner.execute(output)

    def _update(self, output: SchedulerOutput, result: ModelRunnerOutput) -> StepOutputs:
        results = self.scheduler.update_from_output(output, result)
        self._recorder.enter_phase(output.step, Phase.output)
        self.num_steps = output.step + 1
        now = self._clock()
        self.stats.step_done(output, results, self._requests, now)
        for ended in results:
            if ended.finish_reason is not None:
                self._forget(self._requests[ended.request_id], ended.finish_reason)
        return results

    def snapshot(self) -> StatsSnapshot:
        """Returns the engine's numbers as they are now."""
        return self.stats.snapshot(self.scheduler, model_name=self._model_name)

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
            eos_token_id=self._eos_token_ids[0] if self._eos_token_ids else None,
            trace_id=new.trace_id,
            parent_span_id=new.parent_span_id,
            trace_sampled=new.trace_sampled,
            times=RequestTimes(received=new.received_ts, tokenized=new.tokenized_ts, arrived=now),
        )
        self._num_requests += 1
        return request

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
        del self._requests[request.request_id]
