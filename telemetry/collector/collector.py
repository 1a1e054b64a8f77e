"""The collector's loop: find rings, drain them, answer queries, leave when nothing is left."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb

from telemetry.collector.analyst import AnalystKeeper
from telemetry.collector.detail import DEFAULT_DETAIL, Detail, read_detail
from telemetry.collector.endpoint import Endpoint, socket_path
from telemetry.collector.flush import Flush
from telemetry.collector.inbox import Inbox
from telemetry.collector.outage import Outage, failed_again
from telemetry.collector.removal import Remover
from telemetry.collector.retention import RetentionLimits
from telemetry.collector.rings import AttachedRing, RingWatch
from telemetry.collector.supervisor import Supervisor
from telemetry.errors import CollectorError, LogBusy, LogDamaged
from telemetry.exporters.exports import Exports
from telemetry.exporters.settings import ExportSettings
from telemetry.records import SCHEMA_VERSION
from telemetry.ring.place import ring_directories
from telemetry.ring.sanity import NONSENSE
from telemetry.sources.live import LiveSource, LiveSources
from telemetry.store.collector_status import CollectorStatus, LeftAlone
from telemetry.store.files import has_no_room
from telemetry.store.guard import Limits
from telemetry.store.lock import take_lock
from telemetry.store.presence import NOTICE_NAME, CollectorNotice
from telemetry.store.token import Door
from telemetry.store.writer import LogWriter

_log = logging.getLogger("stepscope.collector")

DRAIN_SECONDS = 0.25
"""Time between two flushes while somebody reads, or a ring fills fast."""
UNREAD_DRAIN_SECONDS = 2.0
"""Time between two flushes while nobody reads: most of a flush's cost does not depend on its rows.
"""
_READ_SECONDS = 5.0
"""How long after its last query a reader counts as one."""
_FILLING_FAST = 0.1
"""Part of a region that one flush may find new and still be one of the slow ones."""
DEFAULT_LINGER_SECONDS = 60.0
MOST = Limits(timeout_seconds=300.0, max_rows=5_000_000)
"""The most that a query of a live log may take."""
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


_BAD_ROWS = (duckdb.DataError, duckdb.InvalidInputException, *NONSENSE)
"""What rows raise that the log does not take, whatever its own state."""


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
        detail: Detail = DEFAULT_DETAIL,
        directories: Iterable[Path] | None = None,
        exports: ExportSettings | None = None,
        limits: RetentionLimits | None = None,
        tcp: Door | None = None,
        sources: Sequence[LiveSource] = (),
        analyst: AnalystKeeper | None = None,
    ) -> None:
        self.log = log.absolute()
        self._linger_seconds = linger_seconds
        self._kept = read_detail(detail)
        self._limits = limits or RetentionLimits()
        self._remover = Remover(self.log, self._limits)
        self._watch = RingWatch(
            self.log, ring_directories(self.log) if directories is None else directories
        )
        self._tcp = tcp
        self._sources = LiveSources(sources)
        self._inbox = Inbox()
        self._analyst = analyst or AnalystKeeper(self.log, None)
        self._rings: dict[Path, AttachedRing] = {}
        self._stop = threading.Event()
        self._supervisor = Supervisor()
        self._outage: Outage | None = None
        self._last_flush = -UNREAD_DRAIN_SECONDS
        self._is_filling = False
        self._writer: LogWriter | None = None
        self._endpoint: Endpoint | None = None
        self._exports = Exports(self.log, self._lend, exports or ExportSettings())

    def __enter__(self) -> Collector:
        """Takes the log.

        Raises:
            CollectorError: Another collector has it, or it cannot be used.
        """
        prepare_log(self.log, linger_seconds=self._linger_seconds)
        self._lock_fd = take_lock(self.log)
        return self

    def stop(self) -> None:
        """Asks `run` to flush once more and return."""
        self._stop.set()

    def run(self) -> None:
        """Drains until it is asked to stop, or has had nothing to drain for the linger time."""
        self.open()
        if self._writer is None:
            return
        self._listen()
        self._sources.start()
        self._exports.start()
        self._supervisor.ready()
        last_seen = time.monotonic()
        while True:
            is_last = self._stop.wait(DRAIN_SECONDS)
            self._supervisor.progress()
            if not is_last:
                self._analyst.keep()
            if not is_last and not self._is_due():
                continue
            self.drain()
            self._exports.after_drain(self._rings.values())
            self._exports.save(self._writer)
            if self._writer is None:
                return  # asked to stop while the log could not be opened: the rings keep the rest
            if self._rings or self._sources:
                last_seen = time.monotonic()
            if is_last or time.monotonic() - last_seen > self._linger_seconds:
                return

    def _is_due(self) -> bool:
        """Returns whether to flush now: soon while somebody reads or posts, else less often."""
        now = time.monotonic()
        if self._inbox.is_waiting:
            return True
        reads = self._endpoint is not None and now - self._endpoint.last_query < _READ_SECONDS
        return reads or self._is_filling or now - self._last_flush >= UNREAD_DRAIN_SECONDS

    def open(self) -> None:
        """Opens the log for writing; waits while readers have it open, for they let go.

        Where there is no room, it waits for some. What worked before is tried until it does again.

        Raises:
            LogDamaged: The log cannot be written, for another reason, and never could be.
        """
        back_off, told = 0.1, False
        while self._writer is None:
            try:
                today = datetime.now(UTC).strftime("%Y-%m-%d")
                self._writer = LogWriter(self.log, [today], dense=self._kept.has_dense)
            except (LogBusy, LogDamaged) as error:
                if isinstance(error, LogDamaged):
                    if self._outage is None and not has_no_room(error):
                        raise
                    self._outage = failed_again(self._outage, error)
                if not told:
                    _log.warning("waiting for the step log: %s", error)
                told = True
                self._supervisor.progress()
                if self._stop.wait(back_off):
                    return
                back_off = min(back_off * 2, _LONGEST_BACK_OFF_SECONDS)

    def _listen(self) -> None:
        assert self._writer is not None
        self._endpoint = Endpoint(
            socket_path(self.log),
            self._lend,
            MOST,
            status=self._status,
            post=self._inbox.post,
            tcp=self._tcp,
        )
        CollectorNotice(
            pid=os.getpid(),
            socket=str(self._endpoint.path),
            schema=SCHEMA_VERSION,
            started_ns=time.time_ns(),
            detail=self._kept.detail,
            ring_directories=[str(d) for d in self._watch.directories],
            kept=str(self._limits),
            tcp_port=self._endpoint.tcp_port,
        ).publish(self.log)

    def _status(self) -> CollectorStatus:
        outage = self._outage
        return CollectorStatus(
            num_rings=len(self._rings),
            outage=None if outage is None else outage.text,
            left_alone=[
                LeftAlone(path=str(path), reason=reason)
                for path, reason in self._watch.left_alone().items()
            ],
            sources=self._sources.statuses(),
        )

    def _lend(self) -> AbstractContextManager[Any]:
        if self._writer is None:
            told = "is being opened" if self._outage is None else self._outage.text
            raise LogBusy(f"the step log in {self.log}: {told}: ask again")
        return self._writer.reader()

    # ---------------------------------------------------------------------------- draining

    def drain(self) -> None:
        """Drains all rings to their end; on an error of the database, opens it anew."""
        if self._writer is None:
            return
        try:
            self._attach()
            while self._flush(list(self._rings.values())):
                self._supervisor.progress()
            self._sources.write(self._writer)
            self._inbox.write(self._writer)
            self._last_flush = time.monotonic()
            self._remover.remove_due(self._writer, (r.engine for r in self._rings.values()))
        except (duckdb.Error, LogBusy, LogDamaged) as error:
            reason, self._outage = (
                self._outage and self._outage.reason,
                failed_again(self._outage, error),
            )
            if self._outage.reason != reason:  # told once, however often it is tried
                _log.warning("a flush failed and is done again: %s", error)
            self._reopen()

    def _attach(self) -> None:
        assert self._writer is not None
        new = self._watch.find(self._rings)
        if not new:
            return
        main, dense = self._writer.positions(dense=False), self._writer.positions(dense=True)
        for ring in new:
            self._rings[ring.reader.path] = ring
            try:
                ring.resume(main, dense)
            except (*NONSENSE, OSError) as error:
                self._give_up(ring, error)
                continue
            _log.info("attached engine %016x, pid %s", ring.engine, ring.reader.word("pid"))
            if ring.is_finished:
                self._remove(ring)

    def _flush(self, rings: list[AttachedRing]) -> bool:
        """Writes what is new in `rings` once; returns whether there is more."""
        flush = self._gathered(rings)
        try:
            flush.write()
        except (LogBusy, LogDamaged):
            raise
        except _BAD_ROWS as error:
            return self._flush_apart(rings, error)
        self._is_filling = flush.fill_ratio > _FILLING_FAST
        self._outage = None
        for ring in [ring for ring in self._rings.values() if ring.is_finished]:
            self._remove(ring)
        return flush.is_behind

    def _gathered(self, rings: list[AttachedRing]) -> Flush:
        """Returns what is new; a ring that makes no sense is given up, and nothing kept of it."""
        assert self._writer is not None
        while True:
            flush = Flush(self._writer, self._kept, self._outage)
            for ring in rings:
                try:
                    flush.gather(ring)
                except (*NONSENSE, OSError) as error:
                    self._give_up(ring, error)
                    rings.remove(ring)
                    self._resume(rings)
                    break
            else:
                return flush

    def _flush_apart(self, rings: list[AttachedRing], error: Exception) -> bool:
        """Finds the ring whose rows the log does not take, and gives it up."""
        self._resume(rings)
        if len(rings) == 1:
            self._give_up(rings[0], error)
            return False
        have_more = [self._flush([ring]) for ring in rings]
        return any(have_more)

    def _resume(self, rings: Iterable[AttachedRing]) -> None:
        """Sets rings back to what is committed."""
        assert self._writer is not None
        main, dense = self._writer.positions(dense=False), self._writer.positions(dense=True)
        for ring in rings:
            ring.resume(main, dense)

    def _give_up(self, ring: AttachedRing, error: Exception) -> None:
        """Leaves a ring whose content makes no sense: it must not cost the others."""
        _log.warning("the ring %s is left alone: %r", ring.reader.path, error)
        self._watch.ignore(ring.reader.path, str(error) or repr(error))
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
        self._supervisor.progress()
        tries = self._outage.num_failures if self._outage is not None else 1
        if self._stop.wait(min(0.5 * 2 ** min(tries, 10), _LONGEST_BACK_OFF_SECONDS)):
            return
        self.open()
        if self._writer is not None:
            self._resume(self._rings.values())

    # --------------------------------------------------------------------------------- end

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._analyst.end()
        (self.log / NOTICE_NAME).unlink(missing_ok=True)
        self._inbox.close()
        self._sources.close()
        self._exports.close(self._writer)
        if self._writer is not None:
            self._finish(self._writer)
        if self._endpoint is not None:
            self._endpoint.close()
        for ring in self._rings.values():
            ring.close()
        os.close(self._lock_fd)

    def _finish(self, writer: LogWriter) -> None:
        """Writes what sources told after the last flush, and lets go of the log."""
        for finish in (partial(self._sources.write, writer), writer.close):
            try:
                finish()
            except (duckdb.Error, LogBusy, LogDamaged) as failed:  # what was committed is safe
                _log.warning("the step log did not close cleanly: %s", failed)
