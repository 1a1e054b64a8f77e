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
from engine.settings import EngineSettings
from engine.text.tokenizer import Tokenizer
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock
from tests.engine.builders import config
from tests.engine.server.server_process import wait_until

PID = 4242
"""What this engine says its process is."""


def make_core(
    recorder: Recorder | None = None, *, num_usable_blocks: int = 20, step_seconds: float = 0.0
) -> EngineCore:
    return EngineCore(
        config(num_usable_blocks=num_usable_blocks),
        ScriptedRunner(
            lambda request_id, n: 7,
            step_seconds=lambda output: step_seconds if output.num_scheduled_tokens else 0.0,
        ),
        recorder=recorder or NullRecorder(),
        clock=RunClock.start().now,
        model_name="scripted",
    )


@contextlib.contextmanager
def serving_in_process(
    core: EngineCore,
    started_ts: int = 1,
    *,
    settings: ServerSettings | None = None,
    engine: EngineSettings | None = None,
    tokenizer: Tokenizer | None = None,
    send_buffer_bytes: int | None = None,
) -> Iterator[str]:
    """Serves a core on a free port and yields the address.

    Args:
        send_buffer_bytes: what the kernel keeps for a client that does not read; None is as usual.
    """
    client = _Client(core, started_ts, engine or EngineSettings(scripted_step_seconds=0.0))
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
        if send_buffer_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
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

    def __init__(self, core: EngineCore, started_ts: int, settings: EngineSettings) -> None:
        super().__init__(settings, no_recorder)
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
