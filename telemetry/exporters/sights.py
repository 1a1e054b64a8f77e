"""What the rings' headers say about their engines: alive, how far behind the log is, blind.

The collector's loop looks after every drain; a scrape asks from a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from telemetry.ring.batch import Position, RingState

BLIND_SECONDS = 5.0
"""A step that changes nothing is recorded within a second, so this long without one means blind."""
BLIND_STEPS = 8
"""Steps begun since the last one recorded: more than a pipeline has in flight."""
MOST_MARKS = 1024

NS_PER_SECOND = 1e9


class Header(Protocol):
    """What is read of a ring: `telemetry.ring.RingReader` is one."""

    @property
    def is_held(self) -> bool: ...
    def state(self) -> RingState: ...
    def word(self, name: str) -> int: ...


class Ring(Protocol):
    """A ring that is being drained: `telemetry.collector.rings.AttachedRing` is one."""

    @property
    def engine(self) -> int: ...
    @property
    def reader(self) -> Header: ...
    @property
    def position(self) -> Position: ...


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of an engine whose ring is attached."""

    is_up: bool
    is_blind: bool
    lag_seconds: float
    heartbeat_age_seconds: float
    num_errors: int


@dataclass(slots=True)
class _Watch:
    """What is remembered of a ring between two looks. Times are of the monotonic clock."""

    drained_to: float
    """All that had been published by then is in the log."""
    marks: deque[tuple[int, float]] = field(default_factory=deque)
    """How many commits were published, and when."""
    num_steps: int = -1
    step: int | None = None
    step_recorded_at: float = 0.0
    is_blind: bool = False
    is_up: bool = True
    heartbeat_age_ns: int = 0
    seen_at: float = 0.0
    num_errors: int = 0

    def look(self, ring: Ring, now: float) -> None:
        state = ring.reader.state()
        self._mark(state.published, ring.position.commits, now)
        self._follow(state, now)
        self.is_up = ring.reader.is_held and not state.closed
        word = ring.reader.word
        clock = word("wall_anchor_ns") + time.monotonic_ns() - word("monotonic_anchor_ns")
        self.heartbeat_age_ns = max(clock - state.heartbeat_ns, 0)
        self.seen_at = now
        self.num_errors = state.recorder_errors

    def _mark(self, published: int, drained: int, now: float) -> None:
        if len(self.marks) < MOST_MARKS:
            self.marks.append((published, now))
        while self.marks and self.marks[0][0] <= drained:
            self.drained_to = self.marks.popleft()[1]

    def _follow(self, state: RingState, now: float) -> None:
        if state.num_steps != self.num_steps or state.current_step is None:
            self.num_steps, self.step = state.num_steps, state.current_step
            self.step_recorded_at, self.is_blind = now, False
            return
        num_begun = state.current_step - (self.step or 0)
        self.is_blind = num_begun > BLIND_STEPS and now - self.step_recorded_at > BLIND_SECONDS


class RingSights:
    """The newest look at every attached ring."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._watches: dict[int, _Watch] = {}
        self.has_looked = False
        """Whether the collector has looked at all: until then an engine is not missing."""

    def observe(self, rings: Iterable[Ring]) -> None:
        """Looks at every ring; one that is not among them any more is forgotten."""
        now = self._clock()
        with self._lock:
            watches = {ring.engine: self._look(ring, now) for ring in rings}
            self._watches = watches
            self.has_looked = True

    def _look(self, ring: Ring, now: float) -> _Watch:
        watch = self._watches.get(ring.engine) or _Watch(drained_to=now)
        watch.look(ring, now)
        return watch

    def read(self) -> dict[int, Sight]:
        """Returns what was seen, an engine each; ages go on growing where nobody looks."""
        now = self._clock()
        with self._lock:
            return {engine: _sight(watch, now) for engine, watch in self._watches.items()}


def _sight(watch: _Watch, now: float) -> Sight:
    age = watch.heartbeat_age_ns / NS_PER_SECOND + now - watch.seen_at
    return Sight(
        is_up=watch.is_up,
        is_blind=watch.is_blind,
        lag_seconds=now - watch.drained_to,
        heartbeat_age_seconds=age,
        num_errors=watch.num_errors,
    )
