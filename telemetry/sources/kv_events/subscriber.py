"""KV events as a live source: subscribes to publishers while the collector runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from telemetry.errors import CollectorError
from telemetry.sources.kv_events.endpoints import Endpoint
from telemetry.sources.kv_events.hashes import BlockHasher, key_of
from telemetry.sources.kv_events.messages import MOST_BYTES, NotEventsError, decode
from telemetry.sources.kv_events.replay import fetch
from telemetry.sources.kv_events.rows import rows_of
from telemetry.sources.kv_events.streams import LARGEST_NUMBER, Stream, Streams
from telemetry.sources.rows import SourceRows

_log = logging.getLogger("stepscope.collector")

EARLIEST_NS, LATEST_NS = 24 * 3600 * 10**9, 3600 * 10**9
"""How long ago, and how far ahead, a message's time may be. Others tell of a clock that is off."""
MOST_WAITING = 2_000
"""Messages that wait for us in a socket; beyond, ZeroMQ drops, which the numbers show."""
_LONGEST_RECONNECT_MS = 5_000
_POLL_MS = 200
_GOODBYE_SECONDS = 5.0
_NUMBER_BYTES = 8
_TOO_LARGE = LARGEST_NUMBER.to_bytes(_NUMBER_BYTES, "big")


@dataclass(slots=True)
class _Listening:
    """One address: its publishers, and what came of them."""

    endpoint: Endpoint
    shown: str
    streams: Streams
    num_connections: int = 0
    num_messages: int = 0
    num_rows: int = 0
    num_replayed: int = 0
    num_garbled: int = 0
    last_ns: int | None = None

    def status(self, now: int) -> str:
        peers = f"{self.num_connections:,} connected"
        parts = [f"{self.num_messages:,} messages, {self.num_rows:,} rows"]
        if self.last_ns is not None:
            parts.append(f"the last {(now - self.last_ns) / 1e9:,.1f} s ago")
        for number, told in (
            (self.streams.num_lost, "messages lost"),
            (self.num_replayed, "of lost ones replayed"),
            (self.streams.num_restarts, "restarts"),
            (self.num_garbled, "not understood"),
        ):
            if number:
                parts.append(f"{number:,} {told}")
        return f"{self.shown} ({peers}): {', '.join(parts)}"


@dataclass(slots=True)
class KvEventsListener:
    """Takes KV events while the collector runs. The log's directory is there when it starts."""

    endpoints: Sequence[Endpoint]
    log: Path
    _listening: dict[Any, _Listening] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _context: Any = None
    _thread: threading.Thread | None = None

    def start(self, rows: SourceRows) -> None:
        """Binds and connects, and begins to listen.

        Raises:
            CollectorError: An address cannot be used.
            StepscopeError: The log's key for block hashes cannot be used.
        """
        hasher = BlockHasher(key_of(self.log))
        self._context = zmq.Context()
        try:
            self._listening = dict(map(self._open, self.endpoints))
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(
            target=self._listen, args=(rows, hasher), name="stepscope-kv-events", daemon=True
        )
        self._thread.start()

    def _open(self, endpoint: Endpoint) -> tuple[Any, _Listening]:
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.RCVHWM, MOST_WAITING)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, _LONGEST_RECONNECT_MS)
        socket.setsockopt(zmq.IPV6, int("[" in endpoint.address))
        socket.subscribe(b"")
        socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            (socket.bind if endpoint.binds else socket.connect)(endpoint.address)
        except zmq.ZMQError as error:
            verb = "bound" if endpoint.binds else "connected to"
            raise CollectorError(
                f"{endpoint.address} cannot be {verb}: {error}. Choose another address"
            ) from None
        shown = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return socket, _Listening(endpoint, shown, Streams(endpoint.address))

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the ports that the system chose."""
        return [each.shown for each in self._listening.values()]

    def close(self) -> None:
        """Stops listening."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_GOODBYE_SECONDS)

    def status(self) -> str:
        """Returns what came from each address."""
        if self._thread is None:
            return "KV events: not listening yet"
        lines = [each.status(time.time_ns()) for each in self._listening.values()]
        ended = "" if self._thread.is_alive() else " (ended: see the collector's log)"
        return f"KV events at {'; '.join(lines)}{ended}"

    # --------------------------------------------------------------------- the thread's own

    def _listen(self, rows: SourceRows, hasher: BlockHasher) -> None:
        poller = zmq.Poller()
        monitored = {socket.get_monitor_socket(): socket for socket in self._listening}
        for socket in (*self._listening, *monitored):
            poller.register(socket, zmq.POLLIN)
        try:
            while not self._stop.is_set():
                for socket, _ in poller.poll(_POLL_MS):
                    if socket in monitored:
                        self._hear_of_connection(socket, monitored[socket])
                    else:
                        self._take(self._listening[socket], socket.recv_multipart(), rows, hasher)
        except Exception:  # the collector goes on without this source
            _log.exception("KV events are not listened to any more")
        finally:
            self._context.destroy(linger=0)

    def _hear_of_connection(self, monitor: Any, socket: Any) -> None:
        """Counts connections. ZeroMQ gives one up for ever after a message that is too large."""
        place = self._listening[socket]
        if recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            place.num_connections += 1
            return
        place.num_connections = max(0, place.num_connections - 1)
        if not place.endpoint.binds:
            with suppress(zmq.ZMQError):  # it has let go of it by itself
                socket.disconnect(place.endpoint.address)
            socket.connect(place.endpoint.address)

    def _take(
        self, place: _Listening, frames: list[bytes], rows: SourceRows, hasher: BlockHasher
    ) -> None:
        """Takes a message: topic, number, payload; and before it those that it shows missing."""
        if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES or frames[1] >= _TOO_LARGE:
            place.num_garbled += 1
            return
        topic, number, payload = frames[0], int.from_bytes(frames[1], "big"), frames[2]
        for each, content in self._with_missing(place, topic, number, payload):
            self._store(place, topic, each, content, rows, hasher)

    def _with_missing(
        self, place: _Listening, topic: bytes, number: int, payload: bytes
    ) -> Iterator[tuple[int, bytes]]:
        if place.endpoint.replay is not None:
            stream = _stream(place, topic, payload)
            missing = range(0) if stream is None else stream.numbers.missing_before(number)
            if missing:
                found = fetch(self._context, place.endpoint.replay, missing)
                place.num_replayed += len(found)
                yield from sorted(found.items())
        yield number, payload

    def _store(
        self,
        place: _Listening,
        topic: bytes,
        number: int,
        payload: bytes,
        rows: SourceRows,
        hasher: BlockHasher,
    ) -> None:
        now = time.time_ns()
        try:
            batch = decode(payload)
            if not now - EARLIEST_NS <= batch.ts <= now + LATEST_NS:
                raise NotEventsError("its time cannot be: compare the clocks")
        except NotEventsError:
            place.num_garbled += 1
            return
        stream = place.streams.find(topic, batch.rank)
        if stream is None:
            place.num_garbled += 1
            return
        stream.numbers.take(number)
        if (description := stream.describe(batch)) is not None:
            rows.describe(stream.engine, description)
        new = rows_of(batch, engine=stream.engine, number=number, hasher=hasher)
        place.num_rows += rows.add("kv_events", new)
        place.num_messages += 1
        place.num_garbled += batch.num_unknown
        place.last_ns = now


def _stream(place: _Listening, topic: bytes, payload: bytes) -> Stream | None:
    try:
        return place.streams.find(topic, decode(payload).rank)
    except NotEventsError:
        return None
