"""Whether a running engine gets on, by its ring alone.

Needs nothing but the base install: it runs inside vLLM's environment too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from telemetry.errors import RingError
from telemetry.probe.sign import Sign
from telemetry.ring import RingReader, RingState, ring_directories
from telemetry.ring.place import SUFFIX
from telemetry.vocabulary import Phase

STALL_SECONDS = 60.0
"""The longest that a phase of a step may take before the engine counts as stuck."""


@dataclass(frozen=True, slots=True)
class LiveRing:
    """The ring of a running engine, as seen in passing."""

    engine: int
    state: RingState
    now: int
    """The present on the engine's clock."""


def live_rings(log: Path) -> Iterator[LiveRing]:
    """Yields the rings of running engines that belong to `log`, or to no log in particular."""
    for directory in ring_directories(log):
        for path in sorted(directory.glob(f"*{SUFFIX}")) if directory.is_dir() else []:
            try:
                reader = RingReader(path)
            except (OSError, RingError):
                continue
            state = reader.state()
            if reader.is_held and not state.closed and reader.log in (None, log.resolve()):
                since_anchor = time.monotonic_ns() - reader.word("monotonic_anchor_ns")
                yield LiveRing(reader.engine, state, reader.word("wall_anchor_ns") + since_anchor)
            reader.close()


def engine_sign(ring: LiveRing, stall_seconds: float) -> Sign:
    """Judges an engine by how long its step loop has been in its phase."""
    state, name = ring.state, f"engine {ring.engine:016x}"
    if state.num_steps == 0:
        return Sign(None, f"{name} has made no step yet")
    if state.phase == Phase.idle:
        return Sign(True, f"{name} has no work, {state.num_steps:,} steps so far")
    seconds = max(ring.now - state.phase_since_ns, 0) / 1e9
    phase = Phase(state.phase).name if state.phase in list(Phase) else f"{state.phase}"
    text = f"{name}: step {state.current_step} is in phase {phase} for {seconds:.1f} s"
    if seconds > stall_seconds:
        return Sign(False, f"{text}, more than {stall_seconds:g} s: it stands still")
    return Sign(True, text)
