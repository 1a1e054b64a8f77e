"""The query endpoint: a Unix socket in the log's directory, for this user alone.

On request it listens at a TCP address as well, where each client shows the token first.

Each client has a thread, each query a connection of its own, so a flush never waits for a query.
A query that is too heavy is interrupted. One that does not hear the interrupt ends the process, and
one that kills it does too: that costs the queries of the moment and nothing else, since the rings
keep what was not drained yet and whoever is attached starts another collector.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import math
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from telemetry.errors import LogBusy, PostRefused, QueryRefused, StepscopeError
from telemetry.store import wire
from telemetry.store.collector_status import CollectorStatus
from telemetry.store.guard import Answer, Limits, run_query
from telemetry.store.niceness import give_way
from telemetry.store.token import Door

_log = logging.getLogger("stepscope.collector")

MAX_CLIENTS = 64
MAX_STRANGERS = 8
"""Clients of the TCP address that have not shown the token yet."""
_HANDSHAKE_SECONDS = 5.0
MAX_QUERIES_AT_ONCE = 8
_GOODBYE_SECONDS = 5.0
_REOPENING_SECONDS = 5.0
"""How long a query waits for a log that is being opened anew."""
DEAF_SECONDS = 15.0
"""How long a query may go on after it was interrupted."""
LONGEST_SOCKET_PATH = 100
"""Bytes; Linux takes 107, macOS 103."""


def socket_path(log: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns where the socket of a log goes: in its directory, unless that path is too long."""
    path = log.resolve() / "collector.sock"
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return path
    runtime = environ.get("XDG_RUNTIME_DIR")
    root = Path(runtime or tempfile.gettempdir()) / f"stepscope-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(root)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{root} is not this user's alone: remove it")
    return root / f"{hashlib.sha256(os.fsencode(log.resolve())).hexdigest()[:24]}.sock"


def _end_process(sql: str) -> None:
    _log.critical("a query does not end and cannot be interrupted; the collector ends: %.500s", sql)
    os._exit(os.EX_SOFTWARE)


class Endpoint:
    """Answers queries until it is closed."""

    def __init__(
        self,
        path: Path,
        reader: Callable[[], AbstractContextManager[Any]],
        limits: Limits,
        *,
        on_deaf: Callable[[str], None] = _end_process,
        status: Callable[[], CollectorStatus] | None = None,
        post: Callable[[Any], int] | None = None,
        tcp: Door | None = None,
    ) -> None:
        """Listens at `path`. `reader` lends a connection for one query.

        `limits` are the most that a query may ask for. `on_deaf` is told of a statement that goes
        on and on after its interrupt; without another wish it ends the process. `status` says how
        the collector fares, `post` stores rows of findings and says how many. With `tcp` it listens
        there as well.

        Raises:
            OSError: It cannot listen there.
        """
        self.path = path
        self._reader = reader
        self._limits = limits
        self._on_deaf = on_deaf
        self._status = status
        self._post = post
        self.last_query = -math.inf
        """When the last query came, on the monotonic clock, in seconds."""
        self._clients: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MAX_QUERIES_AT_ONCE)
        self._is_closed = False
        self._tcp = tcp
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        servers = [self._listen()]
        self.tcp_port: int | None = None
        if tcp is not None:
            servers.append(socket.create_server((tcp.host, tcp.port)))
            self.tcp_port = int(servers[-1].getsockname()[1])
        self._doors = {
            server: threading.Thread(
                target=self._accept, args=(server,), name="stepscope-endpoint", daemon=True
            )
            for server in servers
        }
        for door in self._doors.values():
            door.start()

    def _listen(self) -> socket.socket:
        self.path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            server.bind(str(self.path))
        finally:
            os.umask(before)
        server.listen(16)
        return server

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve, args=(client,), name="stepscope-query", daemon=True
            )
            with self._lock:
                if self._is_closed or len(self._clients) >= MAX_CLIENTS or not _is_allowed(client):
                    client.close()
                    continue
                self._clients[client] = thread
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        give_way()
        try:
            if client.family != socket.AF_UNIX and not self._knows_token(client):
                return
            while (request := wire.receive_request(client)) is not None:
                match request:
                    case wire.Query():
                        self._answer(client, request)
                    case wire.Post():
                        self._take(client, request.rows)
                    case _:
                        self._tell_status(client)
        except ValueError as error:
            _log.warning("a client was sent away: %s", error)
        except OSError:
            pass  # it went away
        finally:
            with self._lock:
                self._clients.pop(client, None)
            client.close()

    def _knows_token(self, client: socket.socket) -> bool:
        """Returns whether a client of the TCP address shows the token, in a short time."""
        assert self._tcp is not None
        if not self._strangers.acquire(blocking=False):
            return False
        try:
            client.settimeout(_HANDSHAKE_SECONDS)
            shown = wire.receive_token(client)
        finally:
            self._strangers.release()
        client.settimeout(None)
        if hmac.compare_digest(shown.encode("utf-8", "replace"), self._tcp.token.encode()):
            wire.send_welcome(client)
            return True
        _log.warning("a reader at the TCP address was refused: its token is wrong")
        wire.send_error(client, QueryRefused("the token is wrong, or there is none"))
        return False

    def _tell_status(self, client: socket.socket) -> None:
        if self._status is None:
            raise ValueError("this endpoint has no status")
        wire.send_status(client, asdict(self._status()))

    def _take(self, client: socket.socket, rows: Any) -> None:
        """Has rows stored, and says so once they are."""
        try:
            if self._post is None:
                raise PostRefused("this endpoint takes no posts")
            num_rows = self._post(rows)
        except StepscopeError as error:
            wire.send_error(client, error)
        else:
            wire.send_stored(client, num_rows)

    def _answer(self, client: socket.socket, query: wire.Query) -> None:
        limits = Limits(
            min(query.limits.timeout_seconds, self._limits.timeout_seconds),
            min(query.limits.max_rows, self._limits.max_rows),
        )
        if not query.is_background:
            self.last_query = time.monotonic()
        try:
            if not self._slots.acquire(timeout=limits.timeout_seconds):
                raise QueryRefused(
                    f"{MAX_QUERIES_AT_ONCE} queries are running already: ask again later"
                )
            try:
                answer = self._run(query.sql, query.params, limits)
            finally:
                self._slots.release()
        except StepscopeError as error:
            wire.send_error(client, error)
        else:
            wire.send_answer(client, answer)

    def _run(self, sql: str, params: Any, limits: Limits) -> Answer:
        """Runs a query; once more where the log was opened anew meanwhile, as at UTC midnight."""
        end = time.monotonic() + limits.timeout_seconds
        patience_ends = time.monotonic() + _REOPENING_SECONDS
        while True:
            try:
                with self._reader() as connection, self._patience(sql, limits):
                    patience_ends = math.inf  # it ran: whoever interrupts it opens the log anew
                    return run_query(connection, sql, params, limits)
            except LogBusy:
                now = time.monotonic()
                if self._is_closed or now > min(end, patience_ends):
                    raise
                patience_ends = min(patience_ends, now + _REOPENING_SECONDS)
            time.sleep(0.02)

    @contextlib.contextmanager
    def _patience(self, sql: str, limits: Limits) -> Iterator[None]:
        """Runs out where what is inside goes on long after its time limit."""
        timer = threading.Timer(limits.timeout_seconds + DEAF_SECONDS, self._on_deaf, [sql])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Stops listening, hangs up on every client and waits for their threads.

        Queries must have been interrupted before.
        """
        with self._lock:
            self._is_closed = True
            clients = dict(self._clients)
        for each in (*self._doors, *clients):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in (*self._doors.values(), *clients.values()):
            thread.join(_GOODBYE_SECONDS)
        for server in self._doors:
            server.close()
        self.path.unlink(missing_ok=True)


def _is_allowed(client: socket.socket) -> bool:
    """Returns whether the client runs as this user, or as root. One over TCP shows a token yet."""
    if client.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return True  # the socket's mode says so
    data = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", data)
    return uid in (0, os.getuid())
