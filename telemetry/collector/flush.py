"""One flush: what all rings have that is new, written so that a kill anywhere repeats nothing.

A transaction covers one file. Order makes them exact together: for each day, oldest first, losses
of dense rows are noted, then dense rows are written, then all others. The furthest position of all
days is where reading goes on; the dense file has its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from telemetry.collector import derive
from telemetry.collector.detail import Kept
from telemetry.collector.outage import Outage
from telemetry.collector.rings import AttachedRing
from telemetry.ring.batch import Loss, Position, RingBatch, RingState
from telemetry.ring.header import boot_id
from telemetry.store.files import day_of
from telemetry.store.rows import RowBuffer
from telemetry.store.writer import LogWriter

HEARTBEAT_SECONDS = 1.0
ANCHOR_SECONDS = 60.0
MAX_BATCHES = 8
"""Batches of a ring in one flush: a collector that fell behind catches up in several."""


@dataclass(slots=True)
class _Day:
    """What goes into the files of one day."""

    notes: RowBuffer
    dense: RowBuffer
    main: RowBuffer
    main_drains: dict[int, dict[str, object]] = field(default_factory=dict)
    dense_drains: dict[int, dict[str, object]] = field(default_factory=dict)


class Flush:
    """Gathers from rings, then writes once."""

    def __init__(self, writer: LogWriter, kept: Kept, outage: Outage | None = None) -> None:
        """Begins a flush; each engine's record gets the `outage` that it ends."""
        self._writer = writer
        self._outage = outage
        self._kept = kept
        self._dense = kept.has_dense
        self._days: dict[str, _Day] = {}
        self._moves: dict[int, tuple[AttachedRing, Position, Position]] = {}
        self._finished: list[AttachedRing] = []
        self.is_behind = False
        """Whether a ring had more than was taken."""
        self.fill_ratio = 0.0
        """The largest part of a region that was new."""

    def gather(self, ring: AttachedRing) -> None:
        """Takes what is new in a ring, and its end if that has come."""
        has_ended = not ring.reader.is_held
        state = ring.reader.state()
        ring.reader.check_time(state.heartbeat_ns, "the heartbeat")
        ring.reader.check_time(state.phase_since_ns or state.heartbeat_ns, "the phase")
        last_ts, is_drained = self._take(ring)
        self._add_header(ring, state)
        if is_drained and (has_ended or state.closed):
            self._finish(ring, state, max(last_ts, state.heartbeat_ns, state.phase_since_ns))

    def _take(self, ring: AttachedRing) -> tuple[int, bool]:
        """Takes batches; returns the time of the last one and whether nothing is left.

        A batch that lost dense rows is the first of its flush, since the note of that loss is
        committed before everything else.
        """
        position, dense_position = ring.position, ring.dense_position
        last_ts, is_drained = 0, False
        for number in range(MAX_BATCHES):
            batch = ring.reader.read(position)
            if batch is None:
                is_drained = True
                break
            ring.reader.check_time(batch.ts, "a commit")
            if number and self._dense_loss(batch, dense_position) is not None:
                break
            self._add(ring, batch, dense_position)
            position, last_ts = batch.position, batch.ts
            dense_position = _further(dense_position, position)
        self._moves[ring.engine] = (ring, position, dense_position)
        self.fill_ratio = max(self.fill_ratio, ring.fill_ratio(position))
        self.is_behind = self.is_behind or not is_drained
        return last_ts, is_drained

    def _day(self, ts: int) -> _Day:
        day = day_of(ts)
        if day not in self._days:
            new = self._writer.new_rows
            self._days[day] = _Day(new(dense=False), new(dense=True), new(dense=False))
        return self._days[day]

    def _add(self, ring: AttachedRing, batch: RingBatch, dense_position: Position) -> None:
        day = self._day(batch.ts)
        self._describe(ring, batch.ts)
        derive.add_batch(day.main, ring.engine, batch, ring.prefixes, self._kept.dropped_kinds)
        losses = [loss for loss in batch.losses if loss.region != "step_requests"]
        day.main.add_rows("request_events", derive.dropped_rows(ring.engine, batch, losses))
        self._move(ring, day, batch.position, closed=False)
        if self._dense:
            self._add_dense(ring, day, batch, dense_position)

    def _add_dense(
        self, ring: AttachedRing, day: _Day, batch: RingBatch, dense_position: Position
    ) -> None:
        loss = self._dense_loss(batch, dense_position)
        if loss is not None:
            rows = derive.dropped_rows(ring.engine, batch, [loss])
            day.notes.add_rows("request_events", rows)
            so_far = replace(ring.position, step_requests=loss.last + 1)
            day.notes.add_rows("drains", [self._drain(ring, so_far, closed=False)])
        derive.add_dense(
            day.dense,
            ring.engine,
            batch,
            dense_position.step_requests,
            block_size=ring.block_size,
            every=self._kept.dense_every or 1,
        )
        moved = _further(dense_position, batch.position)
        day.dense_drains[ring.engine] = self._drain(ring, moved, closed=False)

    def _dense_loss(self, batch: RingBatch, dense_position: Position) -> Loss | None:
        """Returns which dense rows were lost and neither written nor noted."""
        begin = max(batch.begin.step_requests, dense_position.step_requests)
        last = batch.first_step_request - 1
        return Loss("step_requests", begin, last) if self._dense and begin <= last else None

    def _add_header(self, ring: AttachedRing, state: RingState) -> None:
        """Adds what the header says: a heartbeat a second, the clocks once a minute."""
        now = time.monotonic()
        day = self._day(state.heartbeat_ns)
        if self._outage is not None:
            told = self._outage.row(ring.engine, state.heartbeat_ns)
            day.main.add_rows("request_events", [told])
        if ring.is_new and ring.engine not in day.main_drains:
            self._move(ring, day, ring.position, closed=False)
        if ring.is_new and ring.next_anchor == 0.0:
            self._add_anchor(
                ring, ring.reader.word("monotonic_anchor_ns"), ring.reader.word("wall_anchor_ns")
            )
        if now >= ring.next_anchor and ring.reader.identity.get("boot_id") == boot_id():
            ring.next_anchor = now + ANCHOR_SECONDS
            self._add_anchor(ring, time.monotonic_ns(), time.time_ns())
        if now >= ring.next_heartbeat and state.heartbeat_ns > ring.heartbeat_ns:
            ring.next_heartbeat = now + HEARTBEAT_SECONDS
            ring.heartbeat_ns = state.heartbeat_ns
            self._describe(ring, state.heartbeat_ns)
            day.main.add_rows("heartbeats", [derive.heartbeat_row(ring.engine, state)])

    def _add_anchor(self, ring: AttachedRing, monotonic_ns: int, wall_ns: int) -> None:
        word = ring.reader.word
        ts = word("wall_anchor_ns") + monotonic_ns - word("monotonic_anchor_ns")
        row = {
            "engine": ring.engine,
            "ts": ts,
            "monotonic_ns": monotonic_ns,
            "wall_ns": wall_ns,
        }
        self._day(ts).main.add_rows("clock_anchors", [row])

    def _describe(self, ring: AttachedRing, ts: int) -> None:
        """Adds the engine's row to a day that lacks it, or has an older description."""
        day = day_of(ts)
        if ring.described.get(day) == ring.reader.word("description_version"):
            return
        version, description = ring.reader.description()
        ring.described[day] = version
        ring.block_size = derive.block_size_of(description)
        self._day(ts).main.add_rows(
            "engines", [derive.engine_row(ring.reader, description, self._kept.detail)]
        )

    def _finish(self, ring: AttachedRing, state: RingState, ts: int) -> None:
        """Adds the end of a ring, at its last sign of life `ts`, with its last counters."""
        self._describe(ring, ts)
        day = self._day(ts)
        day.main.add_rows("heartbeats", [derive.heartbeat_row(ring.engine, state)])
        position = self._moves[ring.engine][1]
        if not state.closed:
            died = derive.died_row(ring.engine, state, position, ts)
            day.main.add_rows("request_events", [died])
        self._move(ring, day, position, closed=True)
        self._finished.append(ring)

    def _move(self, ring: AttachedRing, day: _Day, position: Position, *, closed: bool) -> None:
        day.main_drains[ring.engine] = self._drain(ring, position, closed=closed)

    def _drain(self, ring: AttachedRing, position: Position, *, closed: bool) -> dict[str, object]:
        version = ring.reader.word("description_version")
        return derive.drain_row(ring.engine, position, time.time_ns(), version, closed)

    def write(self) -> None:
        """Writes everything, then moves the rings on."""
        for name, day in sorted(self._days.items()):
            day.main.add_rows("drains", list(day.main_drains.values()))
            day.dense.add_rows("drains", list(day.dense_drains.values()))
            self._writer.prepare(name)
            for rows, dense in ((day.notes, False), (day.dense, True), (day.main, False)):
                if rows:
                    self._writer.write(name, rows, dense=dense)
        for ring, position, dense_position in self._moves.values():
            ring.is_new = False
            ring.position, ring.dense_position = position, dense_position
            ring.prefixes.commit(position.events)
        for ring in self._finished:
            ring.is_finished = True


def _further(one: Position, other: Position) -> Position:
    return one if one.commits >= other.commits else other
