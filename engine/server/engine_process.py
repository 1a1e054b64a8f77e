"""The engine process: builds the engine, runs its step loop, talks to the API through one pipe.

What the API asks is looked for between two steps, in an `inbox` that a thread fills.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from importlib import metadata
from multiprocessing.connection import Connection

from engine.core import EngineCore, NewRequest
from engine.identity import LifeEvents, describe, introduce
from engine.loading import LoadedEngine, load_engine
from engine.scheduler.integrity import IntegrityReport
from engine.server.inbox import Inbox
from engine.server.messages import (
    AbortRequests,
    AddRequest,
    AskIntegrity,
    AskStats,
    EngineFailed,
    EngineReady,
    FromEngine,
    IntegrityReply,
    Refused,
    Shutdown,
    StatsReply,
    StepDone,
    ToEngine,
)
from engine.settings import EngineSettings
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
        core = _start(connection, settings, recorder, life, clock, api_url)
        if core is not None:
            StepLoop(core, inbox, connection, recorder, clock, life, settings).run()
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
    ) -> None:
        self._core = core
        self._inbox = inbox
        self._connection = connection
        self._recorder = recorder
        self._clock = clock
        self._life = life
        self._is_stuck = False
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
        self._core.abort_all(FinishReason.abort_api)
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
        self._is_stuck = output.total_num_scheduled_tokens == 0 and not results
        if self._step_fd is not None:
            os.write(self._step_fd, b"%d\n" % output.step)
        _send(
            self._connection,
            StepDone(
                step=output.step,
                num_scheduled_tokens=output.total_num_scheduled_tokens,
                results=tuple(results),
            ),
        )

    def _handle(self, message: ToEngine) -> str | None:
        """Does what a message asks for; returns why to stop if it does."""
        self._is_stuck = False
        match message:
            case AddRequest():
                self._add(message)
            case AbortRequests():
                self._core.abort(message.request_ids, message.reason)
            case AskStats():
                _send(
                    self._connection,
                    StatsReply(ticket=message.ticket, stats=self._core.snapshot()),
                )
            case AskIntegrity():
                _send(self._connection, self._examine(message.ticket))
            case Shutdown():
                return message.why
        return None

    def _examine(self, ticket: int) -> IntegrityReply:
        """Checks the books. They may be in any state, and whoever asks must not end the service."""
        started = time.monotonic_ns()
        report: IntegrityReport | None = None
        error: str | None = None
        try:
            report = self._core.examine()
        except Exception as failure:  # books so broken that they cannot be read
            error = f"{type(failure).__name__}: {failure}"
        took = time.monotonic_ns() - started
        return IntegrityReply(ticket=ticket, duration_ns=took, report=report, error=error)

    def _add(self, message: AddRequest) -> None:
        refusal = self._core.add_request(
            NewRequest(
                request_id=message.request_id,
                prompt_token_ids=message.prompt_token_ids,
                sampling=message.sampling,
                priority=message.priority,
                adapter=message.adapter,
                received_ts=self._on_run_clock(message.received_ns),
                tokenized_ts=(
                    None
                    if message.tokenized_ns is None
                    else self._on_run_clock(message.tokenized_ns)
                ),
                trace_id=message.trace_id,
                parent_span_id=message.parent_span_id,
                trace_sampled=message.trace_sampled,
            )
        )
        if refusal is not None:
            _send(self._connection, Refused(result=refusal))

    def _on_run_clock(self, monotonic_ns: int) -> int:
        return self._clock.wall_anchor_ns + monotonic_ns - self._clock.monotonic_anchor_ns


def _start(
    connection: Connection,
    settings: EngineSettings,
    recorder: Recorder,
    life: LifeEvents,
    clock: RunClock,
    api_url: str | None,
) -> EngineCore | None:
    """Returns a core that is ready, told to record and API; None where it cannot be made."""
    name = settings.model_name
    row = introduce(
        started_ts=clock.wall_anchor_ns, model=name, version=_version(), api_url=api_url
    )
    recorder.describe_engine(row)
    life.starting("loading the model")
    core: EngineCore | None = None

    def enter_phase(phase: Phase) -> None:
        recorder.enter_phase(0 if core is None else core.num_steps, phase)

    try:
        loaded = load_engine(settings, phase_hook=enter_phase)
    except Exception as error:
        is_usage = isinstance(error, ValueError)
        life.failed(f"{type(error).__name__}: {error}")
        _send(connection, EngineFailed(error=str(error), is_usage=is_usage))
        if is_usage:
            return None
        raise
    core = EngineCore(
        loaded.config,
        loaded.runner,
        recorder=recorder,
        clock=clock.now,
        model_name=name,
        eos_token_ids=loaded.eos_token_ids,
    )
    recorder.describe_engine(
        describe(row, loaded.config, device=loaded.device, memory=loaded.memory)
    )
    life.started()
    _send(connection, _ready(loaded, clock.wall_anchor_ns))
    return core


def _ready(loaded: LoadedEngine, started_ts: int) -> EngineReady:
    return EngineReady(
        config=loaded.config,
        model_directory=None if loaded.model_directory is None else str(loaded.model_directory),
        vocab_size=loaded.vocab_size,
        device=loaded.device,
        dtype=loaded.dtype,
        pid=os.getpid(),
        started_ts=started_ts,
    )


def _send(connection: Connection, message: FromEngine) -> None:
    """Sends a message; if the API is gone the reading thread has noticed and ends the loop."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(message)


def _version() -> str | None:
    try:
        return metadata.version("stepscope")
    except metadata.PackageNotFoundError:
        return None


def no_recorder(clock: RunClock) -> Recorder:
    """Returns the recorder of an engine that is not recorded."""
    return NullRecorder()
