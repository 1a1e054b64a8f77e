"""The engine's side of the ring.

Invariants:
    Nothing is read beyond `published`; a commit is written after its rows, `published` after the
    commit. `reserved_*` is raised before a row is overwritten, so a reader knows after its copy
    what it must not trust.
    One thread records; the heartbeat has its own words and its own thread.
    No method raises into the engine: errors are counted in the header and warned of once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from telemetry.records import NULLS, EngineRow, Event, RunClock, StepRequests, StepRow
from telemetry.ring import layout as lay
from telemetry.ring.header import description_bytes, identity, resident_bytes, slot_offset
from telemetry.ring.place import create_ring_file
from telemetry.ring.writer import RingWriter
from telemetry.vocabulary import Phase

DEFAULT_RING_MB = 32
HEARTBEAT_SECONDS = 0.25

_log = logging.getLogger("stepscope")
_HEARTBEAT = lay.WORD["heartbeat_ns"]
_CURRENT_STEP = lay.WORD["current_step"]
_PHASE = lay.WORD["phase"]
_PHASE_SINCE = lay.WORD["phase_since_ns"]
_NUM_PREEMPTIONS = lay.WORD["num_preemptions"]
_ERRORS = lay.WORD["recorder_errors"]
_CLOSED = lay.WORD["closed"]
_RSS = lay.WORD["rss_bytes"]
_DESCRIPTION = lay.WORD["description_version"]
_NO_STEP = NULLS["u8"]


class RingRecorder:
    """Writes the record into a memory-mapped ring that survives this process."""

    def __init__(
        self,
        directory: Path,
        clock: RunClock,
        *,
        log: Path | None = None,
        source: str = "stepscope",
        ring_bytes: int = DEFAULT_RING_MB << 20,
        engine: int | None = None,
    ) -> None:
        """Makes the ring in `directory`.

        Raises:
            OSError: There is no room, or the directory cannot be used.
            ValueError: `ring_bytes` holds too little.
        """
        self.engine = engine if engine is not None else 1 + secrets.randbelow((1 << 64) - 2)
        self._clock = clock
        self._layout = lay.plan(ring_bytes)
        self._file = create_ring_file(directory, self.engine, ring_bytes)
        try:
            self._start(identity(self.engine, clock, log, source))
        except BaseException:
            self._file.discard()
            raise

    @property
    def is_recording(self) -> bool:
        """Whether the ring still takes rows."""
        return self._is_open

    @property
    def path(self) -> Path:
        """The ring's file."""
        return self._file.path

    @property
    def layout(self) -> lay.Layout:
        """Where everything lies in it."""
        return self._layout

    def _start(self, who: dict[str, Any]) -> None:
        self._is_open = True
        self._has_warned = False
        self._buffer = memoryview(self._file.memory)
        self._state = self._buffer[: lay.STATE_BYTES].cast("Q")
        self._writer = RingWriter(self._buffer, self._state, self._layout, self._count_error)
        self._write_header(who)
        self._file.publish()
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="stepscope-heartbeat", daemon=True)
        self._heart.start()
        os.register_at_fork(after_in_child=_abandon(weakref.ref(self)))

    def _write_header(self, who: dict[str, Any]) -> None:
        data = lay.layout_bytes(who, self._layout)
        self._buffer[lay.LAYOUT_OFFSET : lay.LAYOUT_OFFSET + len(data)] = data
        words = {
            "layout_version": lay.LAYOUT_VERSION,
            "engine": self.engine,
            "pid": os.getpid(),
            "wall_anchor_ns": self._clock.wall_anchor_ns,
            "monotonic_anchor_ns": self._clock.monotonic_anchor_ns,
            "layout_bytes": len(data),
            "heartbeat_ns": self._clock.now(),
            "rss_bytes": resident_bytes(),
            "current_step": _NO_STEP,
            "phase": Phase.idle,
            "phase_since_ns": self._clock.now(),
            "magic": lay.MAGIC,
        }
        for name, value in words.items():
            self._state[lay.WORD[name]] = value

    # ------------------------------------------------------------------------- the protocol

    def describe_engine(self, engine: EngineRow) -> None:
        """Writes the description into the slot that no reader is sent to, then sends them."""
        if not self._is_open:
            return
        try:
            self._describe(engine)
        except Exception as error:  # the telemetry edge
            self._count_error(f"the engine's description was not written: {error!r}")

    def record_step(
        self, step: StepRow, events: Sequence[Event], requests: StepRequests | None
    ) -> None:
        if not self._is_open:
            return
        try:
            self._writer.publish(step, events, requests)
        except Exception as error:  # the telemetry edge
            self._count_error(f"a step was not recorded: {error!r}")

    def record_events(self, events: Sequence[Event]) -> None:
        if not self._is_open or not events:
            return
        try:
            self._writer.publish(None, events, None)
        except Exception as error:  # the telemetry edge
            self._count_error(f"{len(events)} events were not recorded: {error!r}")

    def enter_phase(self, step: int, phase: Phase) -> None:
        if not self._is_open:
            return
        try:
            state = self._state
            state[_PHASE_SINCE] = self._clock.now()
            state[_CURRENT_STEP] = step
            state[_PHASE] = phase
        except Exception as error:  # the telemetry edge
            self._count_error(f"phase {phase!r} of step {step!r} was not noted: {error!r}")

    def count_preemptions(self, total: int) -> None:
        if not self._is_open:
            return
        try:
            self._state[_NUM_PREEMPTIONS] = total
        except Exception as error:  # the telemetry edge
            self._count_error(f"preemption counter {total!r} was not noted: {error!r}")

    def count_error(self, message: str) -> None:
        if self._is_open:
            self._count_error(message)

    def close(self) -> None:
        """Says good-bye and lets go of the ring; the collector removes it once it is drained."""
        if not self._is_open:
            return
        self._is_open = False
        self._stop.set()
        self._state[_HEARTBEAT] = self._clock.now()
        self._writer.fence()
        self._state[_CLOSED] = 1  # at once: whoever ends the engine may not wait for its threads
        self._heart.join(timeout=1.0)
        self._release()

    def _describe(self, engine: EngineRow) -> None:
        data, excess = description_bytes(engine)
        if excess:
            self._count_error(
                f"the engine's description is {excess:,} bytes longer than the "
                f"{lay.DESCRIPTION_SLOT_BYTES:,} that a ring holds: recorded without `settings`"
            )
        version = self._state[_DESCRIPTION] + 1
        start = slot_offset(version)
        self._buffer[start : start + len(data)] = data
        self._writer.fence()
        self._state[_DESCRIPTION] = version

    # ----------------------------------------------------------------------- life and death

    def _count_error(self, message: str) -> None:
        self._state[_ERRORS] += 1
        if not self._has_warned:
            self._has_warned = True
            _log.warning("recorder: %s (warned once; `stepscope doctor` counts them)", message)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            self._state[_HEARTBEAT] = self._clock.now()
            self._state[_RSS] = resident_bytes()

    def _release(self) -> None:
        """Gives back the lock, and the mapping unless somebody is inside it."""
        os.close(self._file.lock_fd)
        self._writer.release()
        with contextlib.suppress(BufferError):
            self._state.release()
            self._buffer.release()
            self._file.memory.close()

    def _abandon(self) -> None:
        """In a forked child: the ring stays the parent's."""
        if self._is_open:
            self._is_open = False
            self._release()


def _abandon(reference: weakref.ref[RingRecorder]) -> Callable[[], None]:
    def in_child() -> None:
        recorder = reference()
        if recorder is not None:
            recorder._abandon()

    return in_child
