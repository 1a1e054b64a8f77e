"""Gives a recorded run's inputs to a fresh scheduler, call by call."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from diagnose.replay.calls import (
    AddRequest,
    AppendTokens,
    Call,
    CloseSession,
    EndRequest,
    ExpireLease,
    GiveUpLoad,
    ProposeDrafts,
    ResetEncoderCache,
    ResetPrefixCache,
    Schedule,
    SetPause,
    TakeInput,
    TakeStep,
    Unblock,
)
from diagnose.replay.inputs import RunInputs
from diagnose.replay.requests import request_of
from diagnose.replay.settings import without_deadlines
from engine.request import Request
from engine.scheduler import ModelRunnerOutput, RequestOutput, Scheduler, SchedulerOutput
from engine.scheduler.kv_loads import release_given_up, release_kept
from engine.scheduler.load_deadlines import give_up_load
from engine.session import SessionInput
from telemetry.recorder import Recorder
from telemetry.vocabulary import EventKind

DRAFT = 0
"""Token of every draft: a replay knows how many are right, not which tokens they are."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A step has been decided."""

    output: SchedulerOutput


@dataclass(frozen=True, slots=True)
class TakenIn:
    """A step has been taken in: what it sampled, and what became of that."""

    step: int
    sampled: dict[str, list[int]]
    results: list[RequestOutput]


@dataclass(slots=True)
class _Progress:
    """How far a request's current text is known."""

    request: Request
    text: int
    num_tokens: int


class Replay:
    """One replay of a run, under its own settings; use once.

    Args:
        clock: of the replay; nothing is decided by it.
    """

    def __init__(
        self,
        inputs: RunInputs,
        *,
        recorder: Recorder | None = None,
        clock: Callable[[], int] | None = None,
        array_path: bool = True,
    ) -> None:
        has_connector = inputs.config.kv_connector is not None
        self.scheduler = Scheduler(
            without_deadlines(inputs.config),
            recorder=recorder,
            clock=clock,
            connector=inputs.connector if has_connector else None,
            ec_connector=inputs.encoder_connector if inputs.encoder_connector else None,
            array_path=array_path,
        )
        self._inputs = inputs
        self._progress: dict[int, _Progress] = {}
        self._numbers: dict[str, int] = {}
        self._outputs: dict[int, SchedulerOutput] = {}
        self._sampling: dict[int, list[str]] = {}
        self._queued: list[TakeInput] = []

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in the order of their arrival."""
        return [progress.request for progress in self._progress.values()]

    def run(self) -> Iterator[Decided | TakenIn]:
        """Replays call by call; yields after each step that was decided or taken in."""
        for call in self._inputs.calls:
            match call:
                case Schedule():
                    yield Decided(self._schedule(call))
                case TakeStep():
                    yield self._take_in(call)
                case _:
                    self._apply(call)

    def _apply(self, call: Call) -> None:
        scheduler = self.scheduler
        match call:
            case AddRequest():
                self._add(call)
            case EndRequest():
                scheduler.finish_requests([self._name(call.request)], call.reason)
            case Unblock():
                scheduler.unblock(self._name(call.request), call.failure)
            case AppendTokens():
                self._append(call)
            case TakeInput():
                self._take_input(call)
            case CloseSession():
                scheduler.close_session(self._name(call.request))
            case ProposeDrafts():
                counts = call.num_drafts.items()
                drafts = {self._name(request): [DRAFT] * count for request, count in counts}
                scheduler.update_draft_token_ids(drafts)
            case SetPause():
                scheduler.set_pause(call.pause)
            case ResetPrefixCache():
                scheduler.reset_prefix_cache(reset_running=call.reset_running)
            case ResetEncoderCache():
                scheduler.reset_encoder_cache()
            case GiveUpLoad():
                give_up_load(scheduler, self._progress[call.request].request, scheduler.clock())
            case ExpireLease():
                self._expire(self._name(call.request))
            case Schedule() | TakeStep():
                raise AssertionError("a step is no input")
            case _:
                assert_never(call)

    # ----------------------------------------------------------------------------------- the inputs

    def _add(self, call: AddRequest) -> None:
        row = self._inputs.arrivals[call.request]
        prompt = self._inputs.tokens.tokens(call.request, 0, 0, row["num_prompt_tokens"])
        request = request_of(row, prompt, self._end_tokens(call.request))
        self._progress[call.request] = _Progress(request, 0, len(prompt))
        self._numbers[request.request_id] = call.request
        self.scheduler.add_request(request)

    def _end_tokens(self, request: int) -> list[int]:
        tokens = self._inputs.tokens
        return [
            tokens.tokens(request, text, position, position + 1)[0]
            for text, position in self._inputs.ends.get(request, ())
        ]

    def _append(self, call: AppendTokens) -> None:
        name = self._name(call.request)
        result = self.scheduler.append_known_tokens(
            name, self._next_tokens(call.request, call.num_tokens)
        )
        self._progress[call.request].num_tokens += len(result.new_token_ids)

    def _take_input(self, call: TakeInput) -> None:
        """Gives a session the rest of its next text, behind what it keeps of this one."""
        tokens = self._inputs.tokens
        num_kept, num_tokens = tokens.span(call.request, call.text)
        text = tokens.tokens(call.request, call.text, num_kept, num_tokens)
        row = self._inputs.inputs[call.request, call.text]
        piece = SessionInput(text, row["max_tokens"], row["arrival_time"])
        self.scheduler.add_session_input(self._name(call.request), piece)
        if call.queued:
            self._queued.append(call)
        else:
            self._begin_text(call)

    def _begin_text(self, call: TakeInput) -> None:
        progress = self._progress[call.request]
        progress.text = call.text
        _, progress.num_tokens = self._inputs.tokens.span(call.request, call.text)

    def _expire(self, name: str) -> None:
        if name in self.scheduler.transfers.given_up:
            release_given_up(self.scheduler, name, EventKind.lease_expired)
        else:
            release_kept(self.scheduler, name, EventKind.lease_expired)

    # ------------------------------------------------------------------------------------ the steps

    def _schedule(self, call: Schedule) -> SchedulerOutput:
        self._inputs.connector.step = self._inputs.encoder_connector.step = call.step
        output = self.scheduler.schedule(throttle_prefills=call.is_throttled)
        requests = self.scheduler.requests
        self._outputs[call.step] = output
        self._sampling[call.step] = [
            name for name in output.num_scheduled_tokens if not requests[name].is_prefill_chunk
        ]
        return output

    def _take_in(self, call: TakeStep) -> TakenIn:
        output = self._outputs.pop(call.step)
        drafts = output.scheduled_spec_decode_tokens
        sampled = {}
        for name in self._sampling.pop(call.step):
            request = self._numbers[name]
            count = 1 + (call.num_accepted.get(request, 0) if name in drafts else 0)
            sampled[name] = self._next_tokens(request, count).tolist()
        results = list(
            self.scheduler.update_from_output(output, self._runner_output(call, sampled))
        )
        for result in results:
            progress = self._progress[self._numbers[result.request_id]]
            progress.num_tokens += len(result.new_token_ids)
        for queued in self._queued:
            self._begin_text(queued)
        self._queued.clear()
        return TakenIn(call.step, sampled, results)

    def _runner_output(self, call: TakeStep, sampled: dict[str, list[int]]) -> ModelRunnerOutput:
        invalid = frozenset(
            self.scheduler.kv.block_ids(self._progress[request].request)[0][place]
            for request, places in call.invalid.items()
            for place in places
        )
        return ModelRunnerOutput(
            sampled_token_ids=sampled,
            finished_recving=self._names(call.received),
            finished_sending=self._names(call.sent),
            failed_recving=self._names(call.failed),
            invalid_block_ids=invalid,
            finished_ec_recving=frozenset(call.received_items),
            failed_ec_recving=frozenset(call.failed_items),
        )

    def _next_tokens(self, request: int, count: int) -> array[int]:
        progress = self._progress[request]
        begin = progress.num_tokens
        return self._inputs.tokens.tokens(request, progress.text, begin, begin + count)

    def _name(self, request: int) -> str:
        return self._progress[request].request.request_id

    def _names(self, requests: Iterable[int]) -> frozenset[str]:
        return frozenset(map(self._name, requests))
