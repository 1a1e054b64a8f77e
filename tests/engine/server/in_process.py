"""A server whose engine lives in the test's own process, where its books can be broken.

Everything but the process is real: API, pipe, step loop, core, scheduler.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from multiprocessing.connection import Connection

import uvicorn
from fastapi import FastAPI

from engine.core import EngineCore
from engine.identity import LifeEvents
from engine.runner.scripted import ScriptedRunner
from engine.server.app import build_app
from engine.server.engine_client import EngineClient
from engine.server.engine_process import StepLoop, no_recorder
from engine.server.inbox import Inbox
from engine.server.messages import EngineReady, Shutdown
from engine.server.settings import ServerSettings
from engine.server.tokenizer import Tokenizer
from engine.settings import EngineSettings
from telemetry.recorder import NullRecorder
from telemetry.records import RunClock
from tests.engine.builders import config
from tests.engine.server.server_process import wait_until

PID = 4242
"""What this engine says its process is."""


def make_core() -> EngineCore:
    return EngineCore(
        config(num_usable_blocks=20),
        ScriptedRunner(lambda request_id, n: 7),
        recorder=NullRecorder(),
        clock=RunClock.start().now,
        model_name="scripted",
    )


@contextlib.contextmanager
def serving_in_process(
    core: EngineCore,
    started_ts: int = 1,
    *,
    settings: ServerSettings | None = None,
    tokenizer: Tokenizer | None = None,
) -> Iterator[str]:
    """Serves a core on a free port and yields the address."""
    client = _Client(core, started_ts)
    client.tokenizer = tokenizer
    app = build_app(client, settings or ServerSettings())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        client.start()
        yield
        await client.stop("the test is over")

    app.router.lifespan_context = lifespan
    http = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=http.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: http.started and client.ready is not None)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            http.should_exit = True
            thread.join()


class _Client(EngineClient):
    """A client that starts a thread where the real one starts a process."""

    def __init__(self, core: EngineCore, started_ts: int) -> None:
        super().__init__(EngineSettings(scripted_step_seconds=0.0), no_recorder)
        self._core = core
        self._started_ts = started_ts

    def start(self, api_url: str | None = None) -> None:
        ours, theirs = multiprocessing.Pipe()
        clock, recorder = RunClock.start(), NullRecorder()
        life = LifeEvents(recorder, clock.now)
        inbox = _Inbox(theirs)
        loop = StepLoop(self._core, inbox, theirs, recorder, clock, life, self.settings)
        self._thread = threading.Thread(target=loop.run)
        self._thread.start()
        self.connect(ours)
        theirs.send(
            EngineReady(
                config=self._core.config,
                model_directory=None,
                vocab_size=256,
                device="scripted",
                dtype="none",
                pid=PID,
                started_ts=self._started_ts,
            )
        )

    def _join(self) -> None:
        self._thread.join()


class _Inbox(Inbox):
    """An inbox that does not end the process when the pipe ends: it is the test's."""

    def _read(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = connection.recv()
                self._queue.put(message)
                if isinstance(message, Shutdown):
                    return
