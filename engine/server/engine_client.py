"""The API's end of the pipe: starts the engine process, hands requests in, hands results out.

Everything but the two threads that read and write the pipe runs on the event loop. The pipe has a
thread each way, so a wedged engine never blocks the loop: `/live` must be able to say so.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from engine.lora.module_spec import AdapterModule
from engine.lora.store import AdapterVersion
from engine.scheduler import PauseState, RequestOutput
from engine.server.engine_process import RecorderFactory, run_engine
from engine.server.messages import (
    AbortRequests,
    AdapterRefused,
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
    LoadAdapter,
    Question,
    ResetPrefixCache,
    SetPause,
    Shutdown,
    StepDone,
    ToEngine,
    UnloadAdapter,
)
from engine.server.result_box import ResultBox
from engine.settings import EngineSettings
from engine.stats import StatsSnapshot
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from telemetry.vocabulary import FinishReason

T = TypeVar("T")

STOP_SECONDS = 3.0
"""How long the engine may take to end by itself; then it is killed."""

ANSWER_TIMEOUT_SECONDS = 5.0

LOAD_TIMEOUT_SECONDS = 300.0
"""To read a large adapter from a slow disk."""

OPERATOR_TIMEOUT_SECONDS = 30.0
"""What an operator asks for is done all the same when it comes too late: there is more patience."""


class EngineState(Enum):
    """How the engine is."""

    STARTING = auto()
    READY = auto()
    FAILED = auto()


class EngineUnavailableError(Exception):
    """The engine cannot be asked now; the message says why."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why there is no room for a request; `is_final`: there never will be."""

    why: str
    is_final: bool


class EngineClient:
    """One engine process and the requests that are open in it."""

    def __init__(self, settings: EngineSettings, recorder_factory: RecorderFactory) -> None:
        self.settings = settings
        self.state = EngineState.STARTING
        self.ready: EngineReady | None = None
        self.tokenizer: Tokenizer | None = None
        self.error: str | None = None
        self.error_is_usage = False
        self.settled = asyncio.Event()
        """Set once the engine is ready or has failed."""
        self.failed = asyncio.Event()
        self.last_step: int | None = None
        self.pause = PauseState.UNPAUSED
        self.adapters: dict[str, AdapterVersion] = {}
        """What names other than the model's stand for."""
        self._recorder_factory = recorder_factory
        self._open: dict[str, ResultBox] = {}
        self._waiters: dict[int, asyncio.Future[Any]] = {}
        self._num_asked = 0
        self._progress_at = time.monotonic()
        self._outbox: queue.SimpleQueue[ToEngine | None] = queue.SimpleQueue()
        self._is_stopping = False

    # ------------------------------------------------------------------------------ life and death

    def start(self, api_url: str | None = None) -> None:
        """Starts the engine process. It reports on the running event loop.

        Args:
            api_url: where the API listens, for the engine's record.
        """
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        self.process = spawn.Process(
            target=run_engine,
            args=(theirs, self.settings, self._recorder_factory, api_url),
            name="stepscope-engine",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        self.connect(ours)

    def connect(self, connection: Connection) -> None:
        """Begins to talk to the engine at the other end of a pipe."""
        self._loop = asyncio.get_running_loop()
        for target, name in ((self._read, "engine-reader"), (self._write, "engine-writer")):
            threading.Thread(target=target, args=(connection,), name=name, daemon=True).start()

    async def stop(self, why: str) -> None:
        """Ends the engine process: asks, then kills. Open requests are told."""
        self._is_stopping = True
        self.fail_open_requests(why)
        self._send(Shutdown(why))
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        self.process.join(STOP_SECONDS if self.ready is not None else 0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def fail_open_requests(self, error: str) -> None:
        """Ends every open stream with an error."""
        for request_id, box in self._open.items():
            box.put(
                RequestOutput(request_id=request_id, finish_reason=FinishReason.error, error=error)
            )

    # ------------------------------------------------------------------------------------ requests

    def check_ready(self) -> EngineReady:
        """Returns what the engine said when it was ready.

        Raises:
            EngineUnavailableError: it is not, or no longer.
        """
        if self._is_stopping:
            raise EngineUnavailableError("the server is shutting down")
        if self.state is not EngineState.READY or self.ready is None:
            raise EngineUnavailableError(self.error or "the engine is starting")
        return self.ready

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The model's own chat template; None where it has none.

        Raises:
            ChatTemplateError: it is broken.
        """
        source = None if self.tokenizer is None else self.tokenizer.chat_template
        return None if source is None else ChatTemplate(source)

    def is_open(self, request_id: str) -> bool:
        """Whether a request with this id is under way."""
        return request_id in self._open

    def submit(self, request: AddRequest, box: ResultBox) -> None:
        """Hands a request in; its results go into the box until `close`."""
        if not self._open:
            self._progress_at = time.monotonic()
        self._open[request.request_id] = box
        self._send(request)

    def report_refusal(self, request: AddRequest, rejection: str | None = None) -> None:
        """Tells the record of a request that is not taken.

        Args:
            rejection: why there is no room for it; None where the engine itself will refuse it.
        """
        self._send(replace(request, rejection=rejection))

    def rejection_of(self, num_requests: int) -> Rejection | None:
        """Returns why so many more requests are too many; None if they are not."""
        limit = self.settings.max_num_queued_reqs
        if limit is None or self.num_open + num_requests <= limit:
            return None
        if num_requests > limit:
            why = (
                f"{num_requests:,} answers are asked for, but --max-num-queued-reqs is {limit:,}: "
                "ask for fewer at once"
            )
            return Rejection(why, is_final=True)
        why = (
            f"{self.num_open:,} requests are under way and {num_requests:,} more would pass "
            f"--max-num-queued-reqs {limit:,}: try again later"
        )
        return Rejection(why, is_final=False)

    def close(self, request_id: str, abort: FinishReason | None) -> None:
        """Forgets a request; with `abort` the engine is told to end it."""
        self._open.pop(request_id, None)
        if abort is not None:
            self._send(AbortRequests(request_ids=(request_id,), reason=abort))

    @property
    def num_open(self) -> int:
        """Requests under way."""
        return len(self._open)

    def seconds_without_progress(self) -> float:
        """Returns how long requests have been open without a token scheduled; 0 without any.

        Steps of a paused engine count as progress: it is an operator who keeps it waiting.
        """
        return time.monotonic() - self._progress_at if self._open else 0.0

    async def stats(self) -> StatsSnapshot:
        """Returns the engine's numbers as of now.

        Raises:
            EngineUnavailableError: it is not ready, or does not answer in time.
        """
        return await self._ask(AskStats())

    async def examine(self) -> CheckedBooks:
        """Has the engine check its books between two steps, which stops it for that long.

        Raises:
            EngineUnavailableError: it is not ready, or does not answer in time.
        """
        return await self._ask(AskIntegrity(), OPERATOR_TIMEOUT_SECONDS)

    # -------------------------------------------------------------------------------- an operator

    async def set_pause(self, pause: PauseState) -> None:
        """Pauses the engine or lets it go on; raises as `stats` does."""
        await self._ask(SetPause(pause), OPERATOR_TIMEOUT_SECONDS)
        self.pause = pause

    async def reset_prefix_cache(self, *, reset_running: bool) -> bool:
        """Empties the prefix cache; False where blocks are in use. Raises as `stats` does."""
        question = ResetPrefixCache(reset_running=reset_running)
        return await self._ask(question, OPERATOR_TIMEOUT_SECONDS)

    async def abort(self, names: Collection[str] | None) -> int:
        """Ends requests for an operator, and tells their callers; raises as `stats` does.

        Args:
            names: ids of API requests or of single requests to the engine; None is all of them.

        Returns:
            How many requests to the engine ended by it.
        """
        request_ids = tuple(
            request_id
            for request_id, box in self._open.items()
            if names is None or request_id in names or box.request_id in names
        )
        question = AbortRequests(request_ids=request_ids, reason=FinishReason.abort_api)
        return await self._ask(question, OPERATOR_TIMEOUT_SECONDS)

    async def load_adapter(self, module: AdapterModule) -> AdapterVersion | AdapterRefused:
        """Has the engine read an adapter beside its steps; raises as `stats` does."""
        answer = await self._ask(LoadAdapter(module), LOAD_TIMEOUT_SECONDS)
        if not isinstance(answer, AdapterRefused):
            self.adapters[module.name] = answer
        return answer

    async def unload_adapter(self, name: str) -> AdapterRefused | None:
        """Has the engine forget an adapter's name; raises as `stats` does."""
        self.adapters.pop(name, None)
        return await self._ask(UnloadAdapter(name))

    async def _ask(self, question: Question[T], seconds: float = ANSWER_TIMEOUT_SECONDS) -> T:
        """Asks the engine and returns its answer."""
        self.check_ready()
        self._num_asked += 1
        ticket = self._num_asked
        waiter = self._waiters[ticket] = self._loop.create_future()
        self._send(Ask(ticket=ticket, question=question))
        try:
            answer: T = await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            raise EngineUnavailableError(
                f"the engine has not answered for {seconds:.0f} s"
            ) from None
        finally:
            del self._waiters[ticket]
        return answer

    # ---------------------------------------------------------------------------------- the pipe

    def _send(self, message: ToEngine) -> None:
        self._outbox.put(message)

    def _write(self, connection: Connection) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                connection.send(message)
        except OSError:
            return  # the reading thread sees the same end and tells

    def _read(self, connection: Connection) -> None:
        try:
            while True:
                message: FromEngine = connection.recv()
                self._loop.call_soon_threadsafe(self._take, message)
        except (EOFError, OSError):
            self._outbox.put(None)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._engine_gone)

    def _take(self, message: FromEngine) -> None:
        match message:
            case StepDone():
                self._step_done(message)
            case Ended():
                for result in message.results:
                    self._give(result)
            case Answered():
                waiter = self._waiters.get(message.ticket)
                if waiter is not None and not waiter.done():
                    waiter.set_result(message.answer)
            case EngineReady():
                self._ready(message)
            case EngineFailed():
                self._fail(message.error, message.is_usage)

    def _ready(self, message: EngineReady) -> None:
        if message.model_directory is not None:
            self.tokenizer = Tokenizer.load(Path(message.model_directory))
        self.ready = message
        self.adapters = {each.module.name: each for each in message.adapters}
        self.state = EngineState.READY
        self.settled.set()

    def _step_done(self, message: StepDone) -> None:
        self.last_step = message.step
        if message.made_progress:
            self._progress_at = time.monotonic()
        for result in message.results:
            self._give(result)

    def _give(self, result: RequestOutput) -> None:
        box = self._open.get(result.request_id)
        if box is not None:
            box.put(result)

    def _engine_gone(self) -> None:
        if not self._is_stopping:
            self.process.join(1)
            self._fail(f"the engine process has died (exit code {self.process.exitcode})", False)

    def _fail(self, error: str, is_usage: bool) -> None:
        if self.state is EngineState.FAILED:
            return
        self.state = EngineState.FAILED
        self.error = error
        self.error_is_usage = is_usage
        self.fail_open_requests(error)
        self.settled.set()
        self.failed.set()
