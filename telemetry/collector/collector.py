"""The collector's loop: find rings, drain them, answer queries, leave when nothing is left."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import duckdb

from telemetry.collector.endpoint import Endpoint, socket_path
from telemetry.collector.flush import Flush
from telemetry.collector.rings import AttachedRing, RingWatch
from telemetry.collector.supervisor import Supervisor
from telemetry.errors import CollectorError, LogBusy
from telemetry.exporters.exports import Exports
from telemetry.exporters.settings import ExportSettings
from telemetry.records import SCHEMA_VERSION
from telemetry.ring.place import ring_directories
from telemetry.store.guard import Limits
from telemetry.store.presence import LOCK_NAME, NOTICE_NAME, CollectorNotice
from telemetry.store.writer import LogWriter

_log = logging.getLogger("stepscope.collector")

Detail: TypeAlias = Literal["transitions", "full"]

DRAIN_SECONDS = 0.25
DEFAULT_LINGER_SECONDS = 60.0
MOST = Limits(timeout_seconds=300.0, max_rows=5_000_000)
"""The most that a query of a live log may take."""
_LOCK_SECONDS = 2.0
_LONGEST_BACK_OFF_SECONDS = 10.0


def prepare_log(log: Path, *, linger_seconds: float = DEFAULT_LINGER_SECONDS) -> None:
    """Makes the log's directory. Call it before an engine starts, to hear then what cannot work.

    Raises:
        CollectorError: The directory cannot be used, or the linger time is not one.
    """
    if not linger_seconds >= 0:  # NaN too
        raise CollectorError(
            f"--linger is {linger_seconds:g}: write seconds, 0 or more (inf never ends)"
        )
    try:
        log.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(log, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(f"user {os.getuid()} may not write there")
    except OSError as error:
        raise CollectorError(
            f"{log} cannot be a log directory: {error.strerror or error}; "
            "name another with --log or STEPSCOPE_LOG"
        ) from None


class Collector:
    """Drains the rings of one step log. Use as a context manager, then `run`.

    Invariants:
        Holds the log's lock from `__enter__` to `__exit__`.
        A ring's file is removed only after its last row and `closed` are committed.
    """

    def __init__(
        self,
        log: Path,
        *,
        linger_seconds: float = DEFAULT_LINGER_SECONDS,
        detail: Detail = "transitions",
        directories: Iterable[Path] | None = None,
        exports: ExportSettings | None = None,
    ) -> None:
        self.log = log.absolute()
        self._linger_seconds = linger_seconds
        self._detail: Detail = detail
        self._watch = RingWatch(
            self.log, ring_directories(self.log) if directories is None else directories
        )
        self._rings: dict[Path, AttachedRing] = {}
        self._stop = threading.Event()
        self._supervisor = Supervisor()
        self._last_failure = ""
        self._writer: LogWriter | None = None
        self._endpoint: Endpoint | None = None
        self._exports = Exports(self.log, self._lend, exports or ExportSettings())

    def __enter__(self) -> Collector:
        """Takes the log.

        Raises:
            CollectorError: Another collector has it, or it cannot be used.
        """
        prepare_log(self.log, linger_seconds=self._linger_seconds)
        self._lock_fd = self._take_lock()
        (self.log / NOTICE_NAME).unlink(missing_ok=True)
        return self

    def _take_lock(self) -> int:
        """Locks the log. Readers look at the lock for an instant, so a held one is tried again."""
        fd = os.open(self.log / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(fd)
                    raise CollectorError(
                        f"a collector is already running for {self.log} "
                        f"(see {self.log / NOTICE_NAME}): one is enough for any number of engines"
                    ) from None
            time.sleep(0.05)

    def stop(self) -> None:
        """Asks `run` to flush once more and return."""
        self._stop.set()

    def run(self) -> None:
        """Drains until it is asked to stop, or has had nothing to drain for the linger time."""
        self.open()
        if self._writer is None:
            return
        self._listen()
        self._exports.start()
        self._supervisor.ready()
        last_seen = time.monotonic()
        while True:
            is_last = self._stop.wait(DRAIN_SECONDS)
            self.drain()
            self._supervisor.progress()
            self._exports.after_drain(self._rings.values())
            self._exports.save(self._writer)
            if self._writer is None:
                return  # asked to stop while the log could not be opened: the rings keep the rest
            if self._rings:
                last_seen = time.monotonic()
            if is_last or time.monotonic() - last_seen > self._linger_seconds:
                return

    def open(self) -> None:
        """Opens the log for writing; waits while readers have it open, for they let go."""
        back_off, told = 0.1, False
        while self._writer is None:
            try:
                today = datetime.now(UTC).strftime("%Y-%m-%d")
                self._writer = LogWriter(self.log, [today], dense=self._detail == "full")
            except LogBusy as error:
                if not told:
                    _log.warning("waiting for the step log: %s", error)
                told = True
                self._supervisor.progress()
                if self._stop.wait(back_off):
                    return
                back_off = min(back_off * 2, _LONGEST_BACK_OFF_SECONDS)

    def _listen(self) -> None:
        assert self._writer is not None
        self._endpoint = Endpoint(socket_path(self.log), self._lend, MOST)
        CollectorNotice(
            pid=os.getpid(),
            socket=str(self._endpoint.path),
            schema=SCHEMA_VERSION,
            started_ns=time.time_ns(),
            detail=self._detail,
            ring_directories=[str(d) for d in self._watch.directories],
        ).publish(self.log)

    def _lend(self) -> AbstractContextManager[Any]:
        if self._writer is None:
            raise LogBusy(f"the step log in {self.log} is being opened: ask again")
        return self._writer.reader()

    # ---------------------------------------------------------------------------- draining

    def drain(self) -> None:
        """Drains all rings to their end; on an error of the database, opens it anew."""
        if self._writer is None:
            return
        try:
            self._attach()
            while self._flush():
                self._supervisor.progress()
            self._last_failure = ""
        except (duckdb.Error, LogBusy) as error:
            if str(error) != self._last_failure:  # told once, however often it is tried
                _log.warning("a flush failed and is done again: %s", error)
            self._last_failure = str(error)
            self._reopen()

    def _attach(self) -> None:
        assert self._writer is not None
        new = self._watch.find(self._rings)
        if not new:
            return
        main, dense = self._writer.positions(dense=False), self._writer.positions(dense=True)
        for ring in new:
            ring.resume(main, dense)
            self._rings[ring.reader.path] = ring
            _log.info("attached engine %016x, pid %s", ring.engine, ring.reader.word("pid"))
            if ring.is_finished:
                self._remove(ring)

    def _flush(self) -> bool:
        """Writes what is new once; returns whether there is more."""
        assert self._writer is not None
        flush = Flush(self._writer, dense=self._detail == "full")
        for ring in list(self._rings.values()):
            try:
                flush.gather(ring)
            except (ValueError, LookupError, ArithmeticError, MemoryError, OSError) as error:
                self._give_up(ring, error)
        flush.write()
        for ring in [ring for ring in self._rings.values() if ring.is_finished]:
            self._remove(ring)
        return flush.is_behind

    def _give_up(self, ring: AttachedRing, error: Exception) -> None:
        """Leaves a ring whose content makes no sense: it must not cost the others."""
        _log.warning("the ring %s is left alone: %r", ring.reader.path, error)
        self._watch.ignore(ring.reader.path)
        del self._rings[ring.reader.path]
        ring.close()

    def _remove(self, ring: AttachedRing) -> None:
        del self._rings[ring.reader.path]
        ring.remove()
        _log.info("drained engine %016x to its end", ring.engine)

    def _reopen(self) -> None:
        """Starts over from what is committed; the rings still hold the rest."""
        try:
            if self._writer is not None:
                self._writer.close()
        except duckdb.Error as error:
            _log.warning("the step log did not close cleanly: %s", error)
        self._writer = None
        if self._stop.wait(1.0):
            return
        self.open()
        if self._writer is not None:
            main, dense = self._writer.positions(dense=False), self._writer.positions(dense=True)
            for ring in self._rings.values():
                ring.resume(main, dense)

    # --------------------------------------------------------------------------------- end

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        (self.log / NOTICE_NAME).unlink(missing_ok=True)
        self._exports.close(self._writer)
        if self._writer is not None:
            self._writer.close()
        if self._endpoint is not None:
            self._endpoint.close()
        for ring in self._rings.values():
            ring.close()
        os.close(self._lock_fd)
