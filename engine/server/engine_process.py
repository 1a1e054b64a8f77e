"""The engine process: builds the engine, runs its step loop, talks to the API through one pipe.

What the API asks is looked for between two steps, in an `inbox` that a thread fills.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from engine.core import EngineCore, NewRequest
from engine.identity import LifeEvents
from engine.loading import LoadedEngine
from engine.lora.store import AdapterStore
from engine.scheduler import RequestOutput
from engine.scheduler.integrity import IntegrityReport
from engine.server.adapter_desk import AdapterDesk
from engine.server.inbox import Inbox
from engine.server.messages import (
    AbortRequests,
    AdapterRead,
    AddRequest,
    Answered,
    Ask,
    AskIntegrity,
    AskStats,
    CheckedBooks,
    Ended,
    EngineFailed,
    EngineReady,
    FromEngine,
    GrammarCompiled,
    LoadAdapter,
    Question,
    ResetPrefixCache,
    SetPause,
    Shutdown,
    StepDone,
    ToEngine,
    TransferEnded,
    UnloadAdapter,
)
from engine.settings import EngineSettings
from engine.starting import start_engine
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock
from telemetry.vocabulary import FinishReason, Phase

RecorderFactory = Callable[[RunClock], Recorder]
"""Makes the recorder inside the engine process; it is pickled, so a module-level callable."""

STUCK_WAIT_SECONDS = 0.05
"""Pause between two steps when requests wait and none can be scheduled; a message ends it."""


def run_engine(
    connection: Connection,
    settings: EngineSettings,
    recorder_factory: RecorderFactory,
    api_url: str | None,
) -> None:
    """Runs an engine until it is told to stop: the target of the engine process.

    Args:
        api_url: where its API listens, for the record.
    """
    inbox = Inbox(connection)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the API decides
    signal.signal(signal.SIGTERM, inbox.on_sigterm)
    clock = RunClock.start()
    recorder = recorder_factory(clock)
    life = LifeEvents(recorder, clock.now)
    try:
        started = _start(connection, settings, recorder, life, clock, api_url)
        if started is not None:
            core, adapters = started
            try:
                StepLoop(core, inbox, connection, recorder, clock, life, settings, adapters).run()
            finally:
                core.close()
    finally:
        recorder.close()


class StepLoop:
    """Takes messages in, steps, sends results out, until it is told to stop."""

    def __init__(
        self,
        core: EngineCore,
        inbox: Inbox,
        connection: Connection,
        recorder: Recorder,
        clock: RunClock,
        life: LifeEvents,
        settings: EngineSettings,
        adapters: AdapterStore | None = None,
    ) -> None:
        self._core = core
        self._adapters = AdapterDesk(adapters, core.adapters_in_use, inbox.post)
        self._inbox = inbox
        self._connection = connection
        self._recorder = recorder
        self._clock = clock
        self._life = life
        self._is_stuck = False
        core.structured_outputs.on_compiled = lambda: inbox.post(GrammarCompiled())
        if core.transfers is not None:
            core.transfers.on_end = lambda: inbox.post(TransferEnded())
        self._step_fd = (
            None if settings.step_pipe is None else os.open(settings.step_pipe, os.O_WRONLY)
        )

    def run(self) -> None:
        """Runs until a `Shutdown`; whatever is open then is aborted.

        Raises:
            Exception: whatever a step raised, once the record and the API have been told.
        """
        try:
            why = self._run_until_told()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            self._core.fail_all(told)
            self._life.failed(told, step=self._core.num_steps)
            _send(self._connection, EngineFailed(error=told))
            raise
        for held in self._adapters.give_back():
            self._add(held)
        self._core.abort_all(FinishReason.abort_api)
        self._core.save_what_is_left()
        self._life.stopped(why, step=self._core.num_steps)

    def _run_until_told(self) -> str:
        why: str | None = None
        while why is None:
            for message in self._inbox.take(self._wait_seconds()):
                why = self._handle(message) or why
            if why is None and self._core.has_work():
                self._step()
        return why

    def _wait_seconds(self) -> float | None:
        if not self._core.has_work():
            self._recorder.enter_phase(self._core.num_steps, Phase.idle)
            return None
        return STUCK_WAIT_SECONDS if self._is_stuck else 0

    def _step(self) -> None:
        output, results = self._core.step()
        self._is_stuck = not (
            output.total_num_scheduled_tokens or results or self._core.has_received_kv
        )
        if self._step_fd is not None:
            os.write(self._step_fd, b"%d\n" % output.step)
        _send(
            self._connection,
            StepDone(
                step=output.step,
                made_progress=output.total_num_scheduled_tokens > 0 or self._core.waits_for_good,
                results=tuple(results),
            ),
        )

    def _handle(self, message: ToEngine) -> str | None:
        """Does what a message asks for; returns why to stop if it does."""
        self._is_stuck = False
        match message:
            case AddRequest():
                if not self._adapters.holds_back(message):
                    self._add(message)
            case AbortRequests():
                self._abort(message)
            case AdapterRead():
                self._take_in_adapter(message)
            case Ask(question=LoadAdapter() as question):
                self._adapters.load(message.ticket, question)
            case Ask():
                answer = self._answer(message.question)
                _send(self._connection, Answered(ticket=message.ticket, answer=answer))
            case GrammarCompiled() | TransferEnded():
                pass  # the next step takes it in; it had to be woken
            case Shutdown():
                return message.why
        return None

    def _answer(self, question: Question[Any]) -> Any:
        """Does what a question asks for and returns what is to be said."""
        match question:
            case AskStats():
                return self._core.snapshot()
            case AskIntegrity():
                return self._examine()
            case SetPause():
                return self._core.scheduler.set_pause(question.pause)
            case ResetPrefixCache():
                return self._core.scheduler.reset_prefix_cache(reset_running=question.reset_running)
            case AbortRequests():
                return self._abort_and_tell(question)
            case UnloadAdapter():
                return self._adapters.unload(question)
        raise TypeError(f"nobody answers {type(question).__name__}")

    def _abort(self, message: AbortRequests) -> list[str]:
        for held in self._adapters.give_back(message.request_ids):
            self._add(held)  # so that the record knows of it
        return self._core.abort(message.request_ids, message.reason)

    def _abort_and_tell(self, message: AbortRequests) -> int:
        """Ends requests whose callers still wait, and tells these; returns how many."""
        ended = self._abort(message)
        results = [RequestOutput(request_id=each, finish_reason=message.reason) for each in ended]
        _send(self._connection, Ended(tuple(results)))
        return len(ended)

    def _take_in_adapter(self, message: AdapterRead) -> None:
        """Answers whoever asked for an adapter that has been read, or lets its requests in."""
        if message.ticket is not None:
            answer = self._adapters.answer(message)
            _send(self._connection, Answered(ticket=message.ticket, answer=answer))
        else:
            for request, error in self._adapters.released(message):
                self._add(request, error)

    def _examine(self) -> CheckedBooks:
        """Checks the books. They may be in any state, and whoever asks must not end the service."""
        started = time.monotonic_ns()
        report: IntegrityReport | None = None
        error: str | None = None
        try:
            report = self._core.examine()
        except Exception as failure:  # books so broken that they cannot be read
            error = f"{type(failure).__name__}: {failure}"
        took = time.monotonic_ns() - started
        return CheckedBooks(duration_ns=took, report=report, error=error)

    def _add(self, message: AddRequest, complaint: str | None = None) -> None:
        """Hands a request to the core; with a complaint, only for its record."""
        new = self._new_request(message)
        if message.adapter is not None and complaint is None:
            complaint = self._adapters.complaint_about(message.adapter)
        if complaint is None:
            refusal = self._core.add_request(new, rejection=message.rejection)
        else:
            refusal = self._core.refuse(new, complaint)
        if refusal is not None:
            _send(self._connection, Ended((refusal,)))

    def _new_request(self, message: AddRequest) -> NewRequest:
        tokenized_ns = message.tokenized_ns
        return NewRequest(
            request_id=message.request_id,
            prompt_token_ids=message.prompt_token_ids,
            sampling=message.sampling,
            priority=message.priority,
            adapter=message.adapter,
            adapter_key=self._adapters.cache_key(message.adapter),
            received_ts=self._on_run_clock(message.received_ns),
            tokenized_ts=None if tokenized_ns is None else self._on_run_clock(tokenized_ns),
            trace_id=message.trace_id,
            parent_span_id=message.parent_span_id,
            trace_sampled=message.trace_sampled,
        )

    def _on_run_clock(self, monotonic_ns: int) -> int:
        return self._clock.wall_anchor_ns + monotonic_ns - self._clock.monotonic_anchor_ns


def _start(
    connection: Connection,
    settings: EngineSettings,
    recorder: Recorder,
    life: LifeEvents,
    clock: RunClock,
    api_url: str | None,
) -> tuple[EngineCore, AdapterStore | None] | None:
    """Returns a core that is ready and its adapters, told to record and API.

    None where it cannot be made.
    """
    try:
        started = start_engine(settings, recorder, life, clock, api_url=api_url)
    except Exception as error:
        is_usage = isinstance(error, ValueError)
        _send(connection, EngineFailed(error=str(error), is_usage=is_usage))
        if is_usage:
            return None
        raise
    _send(connection, _ready(started.loaded, clock.wall_anchor_ns))
    return started.core, started.loaded.adapters


def _ready(loaded: LoadedEngine, started_ts: int) -> EngineReady:
    return EngineReady(
        config=loaded.config,
        model_directory=None if loaded.model_directory is None else str(loaded.model_directory),
        vocab_size=loaded.vocab_size,
        device=loaded.device,
        dtype=loaded.dtype,
        pid=os.getpid(),
        started_ts=started_ts,
        adapters=() if loaded.adapters is None else tuple(loaded.adapters.names.values()),
        device_notes=loaded.device_notes,
    )


def _send(connection: Connection, message: FromEngine) -> None:
    """Sends a message; if the API is gone the reading thread has noticed and ends the loop."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(message)


def no_recorder(clock: RunClock) -> Recorder:
    """Returns the recorder of an engine that is not recorded."""
    return NullRecorder()
