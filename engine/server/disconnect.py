"""Notices that a client has gone away, also while there is nothing to send to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed its connection before it was answered."""


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """Returns what `work` returns; cancels it when the client goes first.

    The request's body must have been read. `work` is over, whichever way, when this returns.

    Raises:
        ClientGoneError: the client went first.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


class EventStream(Response):
    """A response of server-sent events, which stops its source when the client goes away.

    Args:
        work: what the events come from. It is entered before anything is sent, so that an error
            there is still answered with its own status, and left when the stream is over.
        begun: is awaited before anything is sent, and may raise such an error too.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        work: AbstractContextManager[object],
        events: AsyncIterator[bytes],
        headers: dict[str, str],
        begun: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(headers={**headers, "cache-control": "no-cache"})
        self._work = work
        self._events = events
        self._begun = begun
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._work:
                await unless_gone(receive, self._send_all(send))
        except ClientGoneError:
            return

    async def _send_all(self, send: Send) -> None:
        await self._begun()
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._events.aclose()  # type: ignore[attr-defined]


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
