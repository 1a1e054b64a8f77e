"""KV events as a live source: the sockets of a collector, and the thread that listens to them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from telemetry.errors import CollectorError
from telemetry.sources.kv_events.endpoints import Endpoint
from telemetry.sources.kv_events.hashes import BlockHasher, key_of
from telemetry.sources.kv_events.messages import MOST_BYTES
from telemetry.sources.kv_events.reception import Reception
from telemetry.sources.kv_events.replay import fetch
from telemetry.sources.rows import SourceRows

_log = logging.getLogger("stepscope.collector")

MOST_WAITING = 2_000
"""Messages that wait for us in a socket; beyond, ZeroMQ drops, which the numbers show."""
_RECONNECT_MS = 100
"""Between two tries to connect, always: what an engine publishes until then is lost."""
_POLL_MS = 200
_GOODBYE_SECONDS = 5.0


@dataclass(slots=True)
class KvEventsListener:
    """Takes KV events while the collector runs. The log's directory is there when it starts."""

    endpoints: Sequence[Endpoint]
    log: Path
    _receptions: dict[Any, Reception] = field(default_factory=dict)
    """What came, by socket."""
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
            for endpoint in self.endpoints:
                socket, shown = self._open(endpoint)
                self._receptions[socket] = Reception(
                    endpoint, shown, rows, hasher, partial(fetch, self._context)
                )
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread = threading.Thread(
            target=self._listen, name="stepscope-kv-events", daemon=True
        )
        self._thread.start()

    def _open(self, endpoint: Endpoint) -> tuple[Any, str]:
        """Returns a socket that listens, and its address."""
        socket = self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.RCVHWM, MOST_WAITING)
        socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
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
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the ports that the system chose."""
        return [each.shown for each in self._receptions.values()]

    def close(self) -> None:
        """Stops listening."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_GOODBYE_SECONDS)

    @property
    def is_well(self) -> bool:
        """Whether somebody publishes at each address."""
        return bool(self._receptions) and all(
            reception.num_connections for reception in self._receptions.values()
        )

    def status(self) -> str:
        """Returns what came from each address."""
        if self._thread is None:
            return "KV events: not listening yet"
        lines = [each.status() for each in self._receptions.values()]
        ended = "" if self._thread.is_alive() else " (ended: see the collector's log)"
        return f"KV events at {'; '.join(lines)}{ended}"

    # --------------------------------------------------------------------- the thread's own

    def _listen(self) -> None:
        try:
            self._listen_until_stopped()
        except Exception:  # the collector goes on without this source
            _log.exception("KV events are not listened to any more")
        finally:
            self._context.destroy(linger=0)

    def _listen_until_stopped(self) -> None:
        monitored = {socket.get_monitor_socket(): socket for socket in self._receptions}
        poller = zmq.Poller()
        for socket in (*monitored, *self._receptions):
            poller.register(socket, zmq.POLLIN)
        while not self._stop.is_set():
            for socket, _ in poller.poll(_POLL_MS):
                if socket in monitored:
                    self._hear_of_connection(socket, monitored[socket])
                else:
                    self._receptions[socket].take(socket.recv_multipart())

    def _hear_of_connection(self, monitor: Any, socket: Any) -> None:
        """Counts connections. ZeroMQ gives one up for ever after a message that is too large."""
        reception = self._receptions[socket]
        if recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            reception.num_connections += 1
            return
        reception.num_connections = max(0, reception.num_connections - 1)
        endpoint = reception.endpoint
        if not endpoint.binds:
            with suppress(zmq.ZMQError):  # it has let go of it by itself
                socket.disconnect(endpoint.address)
            socket.connect(endpoint.address)
