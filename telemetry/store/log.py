"""What a reader opens: a step log, alive or closed, behind one interface.

DuckDB lets no second process open a file that is being written. So a log with a live collector is
asked through the collector's socket, and a closed one is opened directly. A log may change its
state while somebody reads it; the reader follows, and lets go of the files within a second when a
collector wants them.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from telemetry.errors import (
    CollectorError,
    LogBusy,
    LogDamaged,
    LogNotFound,
    QueryFailed,
)
from telemetry.store import wire
from telemetry.store.bundle import attach_bundle
from telemetry.store.files import attach, day_files, is_locked
from telemetry.store.guard import Answer, Limits, Parameters, check_parameters, lock_down, run_query
from telemetry.store.holding import hold_preemptions
from telemetry.store.presence import find_collector, is_collected
from telemetry.store.token import readers_token, remote_address
from telemetry.store.views import create_log_views

_WATCH_SECONDS = 1.0
_START_SECONDS = 10.0
_POLL_SECONDS = 0.05
_CONNECT_SECONDS = 5.0
_NO_EXTENSIONS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""A file that is no DuckDB file is none of another kind either, for which DuckDB knows a driver."""


def open_log(target: Path, *, limits: Limits | None = None, background: bool = False) -> Log:
    """Returns the step log in the directory `target`, or in the bundle of that name, for reading.

    `tcp://HOST:PORT` is the log of a collector that listens there; the token file is named in
    STEPSCOPE_TOKEN_FILE. A reader in the `background` asks live collectors alone: it never has the
    files open when one wants to write them, and no log is drained more often for its sake.

    Raises:
        LogNotFound: There is none.
        LogBusy: Another process holds its files and does not answer queries.
        LogDamaged: A file of it is no step log.
    """
    return Log(Path(target), limits or Limits(), background=background)


class Log:
    """A step log. Use as a context manager, or close it. Queries of several threads take turns."""

    def __init__(self, target: Path, limits: Limits, *, background: bool = False) -> None:
        self.target = target
        self._limits = limits
        self._background = background
        self._turn = threading.RLock()
        self._truncated = False
        self._backend: _Backend | None = _connect(target, limits, background)
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="stepscope-log-watch", daemon=True).start()

    @property
    def is_live(self) -> bool:
        """Whether a collector is writing the log."""
        return is_collected(self.target)

    @property
    def truncated(self) -> bool:
        """Whether the last query had more rows than the cap, and the rest is missing."""
        return self._truncated

    def query(self, sql: str, params: Parameters = None) -> pa.Table:
        """Returns the rows of one reading statement.

        Raises:
            QueryRefused: It is not a single SELECT.
            QueryTimeout: It took too long.
            QueryFailed: DuckDB could not run it.
            LogNotFound, LogBusy, CollectorError: The log has gone, or does not answer.
        """
        check_parameters(params)
        with self._turn:
            if self._closed.is_set():
                raise LogNotFound(f"the step log {self.target} was closed: open it again")
            answer = self._ask(sql, params)
            self._truncated = answer.truncated
            return answer.table

    def hold_views(self) -> None:
        """Works out once what many statements ask for, where the log is closed; see `holding`.

        Worth its time for whoever asks `preemptions` twice or more. Every statement gives the same
        rows as without it.
        """
        with self._turn:
            if self._backend is not None and self._backend.is_current():
                self._backend.hold_views()

    def _ask(self, sql: str, params: Parameters) -> Answer:
        """Asks; where the log has changed its state meanwhile, once more."""
        if self._backend is not None and self._backend.is_current():
            try:
                return self._backend.query(sql, params)
            except _HungUp:
                pass
        self._drop()
        self._backend = _connect(self.target, self._limits, self._background)
        try:
            return self._backend.query(sql, params)
        except _HungUp as error:
            if isinstance(error.__cause__, QueryFailed):
                raise error.__cause__ from None
            raise CollectorError(f"the collector of {self.target} has just ended") from error

    def _watch(self) -> None:
        """Lets go of the files when a collector wants to write them."""
        while not self._closed.wait(_WATCH_SECONDS):
            if self._turn.acquire(timeout=_WATCH_SECONDS):
                try:
                    if self._backend is not None and not self._backend.is_current():
                        self._drop()
                finally:
                    self._turn.release()

    def _drop(self) -> None:
        if self._backend is not None:
            self._backend.close()
            self._backend = None

    def close(self) -> None:
        """Lets go of everything."""
        self._closed.set()
        with self._turn:
            self._drop()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _HungUp(Exception):  # noqa: N818
    """The collector had gone, or the instance broke: a backend that is opened anew may answer."""


class _Backend(Protocol):
    """One way to ask a log."""

    def query(self, sql: str, params: Parameters) -> Answer: ...

    def hold_views(self) -> None: ...

    def is_current(self) -> bool: ...

    def close(self) -> None: ...


def connect_to(target: Path) -> Callable[[], socket.socket] | None:
    """Returns how to connect to the live collector of a log; None where none answers.

    Raises:
        LogNotFound: The target begins like an address and is none.
    """
    address = remote_address(target)
    if address is not None:
        return partial(_call, address)
    notice = find_collector(target)
    return None if notice is None else partial(_connected, notice.socket)


def _connect(log: Path, limits: Limits, background: bool) -> _Backend:
    """Returns the way to ask that the log's state calls for.

    A collector that is starting or ending is given some time.
    """
    address = remote_address(log)
    if address is not None:
        return _LiveBackend(partial(_call, address), limits, background)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            if notice := find_collector(log):
                return _LiveBackend(partial(_connected, notice.socket), limits, background)
            if not is_collected(log):
                if background:
                    raise CollectorError(f"nobody collects {log} now")
                return _DirectBackend(log, limits)
        except (ConnectionError, BlockingIOError, FileNotFoundError, LogBusy) as error:
            if time.monotonic() > deadline:
                raise LogBusy(
                    f"the step log in {log} cannot be read: {error}. If `stepscope doctor` shows "
                    "no collector, close the process that has it open"
                ) from error
        if time.monotonic() > deadline:
            raise LogBusy(f"the collector of {log} does not answer: see {log / 'collector.log'}")
        time.sleep(_POLL_SECONDS)


def _connected(path: str) -> socket.socket:
    """Returns a connection to a collector of this machine."""
    client = socket.socket(socket.AF_UNIX)
    try:
        client.settimeout(_CONNECT_SECONDS)
        client.connect(path)
    except BaseException:
        client.close()
        raise
    return client


def _call(address: tuple[str, int]) -> socket.socket:
    """Returns a connection to a collector that listens at an address, with the token shown."""
    token = readers_token()
    client = None
    try:
        client = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        wire.send_token(client, token)
        wire.receive_welcome(client)
    except BaseException as error:
        if client is not None:
            client.close()
        if not isinstance(error, OSError):
            raise
        raise LogNotFound(
            f"no collector answers at {address[0]}:{address[1]}: {error.strerror or error}"
        ) from None
    return client


class _LiveBackend:
    """Asks the collector."""

    def __init__(
        self, connect: Callable[[], socket.socket], limits: Limits, background: bool
    ) -> None:
        self._limits = limits
        self._background = background
        self._socket = connect()
        self._socket.settimeout(limits.timeout_seconds + 15.0)

    def query(self, sql: str, params: Parameters) -> Answer:
        try:
            wire.send_request(self._socket, sql, params, self._limits, background=self._background)
        except OSError as error:
            raise _HungUp from error
        try:
            return wire.receive_answer(self._socket)
        except OSError as error:
            raise CollectorError(
                f"the collector ended, or fell silent, during the query ({error}): ask again; "
                "if it does so again, the query is too heavy for it"
            ) from error

    def hold_views(self) -> None:
        """Nothing: what is written next belongs to the answer."""

    def is_current(self) -> bool:
        return True

    def close(self) -> None:
        self._socket.close()


_BROKEN = ("FATAL Error", "INTERNAL Error")
"""How DuckDB's message begins when its instance is of no more use, for any statement."""


class _DirectBackend:
    """Opens the files of a log that nobody writes, or a bundle."""

    def __init__(self, log: Path, limits: Limits) -> None:
        self._log = log
        self._limits = limits
        self._was_held = False
        files = day_files(log)
        if not files and not log.is_file():
            raise LogNotFound(
                f"{log} holds no step log: start an engine with `stepscope serve --log {log}`, "
                "or name another directory with --log"
            )
        self._connection: Any = duckdb.connect(":memory:", config=_NO_EXTENSIONS)
        spill = Path(tempfile.mkdtemp(prefix="stepscope-query-"))
        self._remove_spill = weakref.finalize(self, shutil.rmtree, spill, ignore_errors=True)
        try:
            if log.is_file():
                attach_bundle(self._connection, log, spill=spill)
                return
            for file in files:
                attach(self._connection, file, read_only=True)
            create_log_views(self._connection, files)
            lock_down(self._connection, spill=spill)
        except LogDamaged:
            self.close()
            raise
        except duckdb.Error as error:
            self.close()
            if is_locked(error):
                raise LogBusy(str(error)) from error
            raise LogDamaged(
                f"the step log in {log} cannot be opened: {error}. Move that file away to read "
                "the other days"
            ) from error

    def query(self, sql: str, params: Parameters) -> Answer:
        """Asks DuckDB.

        Raises:
            _HungUp: It has broken; an instance that is opened anew may answer.
        """
        try:
            return run_query(self._connection, sql, params, self._limits)
        except QueryFailed as error:
            if str(error).startswith(_BROKEN):
                raise _HungUp from error
            raise

    def hold_views(self) -> None:
        if not self._was_held:
            self._was_held = True
            hold_preemptions(self._connection, self._limits)

    def is_current(self) -> bool:
        return not is_collected(self._log)

    def close(self) -> None:
        self._connection.close()
        self._remove_spill()
