"""The API process, from its first breath to its last.

The port is bound first and `/health` says 503 until the engine is ready. A signal, or the death of
the engine, ends both processes: open requests get a moment to finish and are then told why not.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.server.app import build_app
from engine.server.engine_client import EngineClient, EngineState
from engine.server.engine_process import RecorderFactory
from engine.server.messages import EngineReady
from engine.server.settings import ServerSettings
from engine.settings import EngineSettings
from engine.stats import StatsSnapshot

DRAIN_SECONDS = 2.0
"""How long open requests may go on after a signal; then they are told that the server goes."""

CLOSE_SECONDS = 4
"""After a signal, when connections that are still open are cut."""

LAST_WORDS_SECONDS = 1.0
"""How long the API goes on once its engine has died, so that whoever asks hears why."""


class BindError(ValueError):
    """The address cannot be listened on."""


class Server:
    """An engine and its API. `mount` what else should be served, then `run`.

    Args:
        recorder_factory: makes the recorder, inside the engine process.
        say: prints a line for the person who started it.
    """

    def __init__(
        self,
        engine: EngineSettings,
        server: ServerSettings,
        *,
        recorder_factory: RecorderFactory,
        say: Callable[[str], None] = print,
    ) -> None:
        self._settings = server
        self._say = say
        self._client = EngineClient(engine, recorder_factory)
        self._app = build_app(self._client, server)
        self._was_signalled = False
        self._on_start: list[Callable[[], object]] = []
        self._on_ready: list[Callable[[str, EngineReady], None]] = []

    def mount(self, path: str, app: ASGIApp) -> None:
        """Serves another application at `path` and below it."""
        self._app.router.routes.append(Route(path, _AsIs(app)))
        self._app.mount(path, app)

    async def stats(self) -> StatsSnapshot:
        """Returns the engine's numbers, for an application that was mounted.

        Raises:
            EngineUnavailableError: the engine cannot be asked now.
        """
        return await self._client.stats()

    def on_start(self, callback: Callable[[], object]) -> None:
        """Calls back once the port is ours and before the engine starts; must return at once.

        What records belongs here: an engine that fails to start is worth a record too.
        """
        self._on_start.append(callback)

    def on_ready(self, callback: Callable[[str, EngineReady], None]) -> None:
        """Calls back with the API's URL and the engine's facts once requests may come."""
        self._on_ready.append(callback)

    def run(self) -> int:
        """Serves until a signal comes or the engine dies; returns the exit code.

        0 after a signal, 2 where a setting kept the engine from starting, 1 where it died.

        Raises:
            BindError: the address is taken or not this machine's.
        """
        with _bind(self._settings.host, self._settings.port) as listener, self._own_signals():
            url = _url(self._settings.host, listener)
            self._say(f"listening on {url}, loading the model")
            for callback in self._on_start:
                callback()
            asyncio.run(self._serve(listener, url))
        if self._client.state is not EngineState.FAILED:
            return 0
        self._say(f"the engine failed: {self._client.error}")
        return 2 if self._client.error_is_usage else 1

    async def _serve(self, listener: socket.socket, url: str) -> None:
        self._app.router.lifespan_context = partial(self._lifespan, url)
        http = _Uvicorn(
            uvicorn.Config(
                self._app,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=CLOSE_SECONDS,
                loop="asyncio",
            ),
            on_exit=self._begin_shutdown,
        )
        watcher = asyncio.create_task(self._watch_engine(http, url))
        await http.serve(sockets=[listener])
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher

    @contextlib.asynccontextmanager
    async def _lifespan(self, url: str, app: FastAPI) -> AsyncIterator[None]:
        self._client.start(url)
        try:
            yield
        finally:
            await self._client.stop("the server is shutting down")

    async def _watch_engine(self, http: uvicorn.Server, url: str) -> None:
        """Announces the engine when it is ready, and ends the server when it is no more."""
        http.should_exit = self._was_signalled  # by a signal that uvicorn was too late for
        try:
            await self._client.settled.wait()
            if self._client.ready is not None:
                for callback in self._on_ready:
                    await asyncio.to_thread(callback, url, self._client.ready)
                await self._client.failed.wait()
                await asyncio.sleep(LAST_WORDS_SECONDS)
        finally:
            http.should_exit = True

    @contextlib.contextmanager
    def _own_signals(self) -> Iterator[None]:
        """Keeps a signal from ending the process before or after uvicorn deals with it.

        uvicorn raises it again, when it is done, for whoever handled it before: that is us.
        """

        def note(signum: int, frame: FrameType | None) -> None:
            self._was_signalled = True

        numbers = (signal.SIGTERM, signal.SIGINT)
        previous = {number: signal.signal(number, note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _begin_shutdown(self) -> None:
        """Gives open requests a moment; those that are not done by then are told."""
        if self._client.num_open:
            asyncio.get_running_loop().call_later(
                DRAIN_SECONDS, self._client.fail_open_requests, "the server is shutting down"
            )


class _AsIs:
    """An application at the end of a route: a mount alone redirects `/path` to `/path/`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class _Uvicorn(uvicorn.Server):
    """uvicorn, with a word before it waits for connections to end."""

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_exit()
        await super().shutdown(sockets)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise BindError(
            f"cannot listen on {host} port {port}: {error}; choose another --host or --port"
        ) from None


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
