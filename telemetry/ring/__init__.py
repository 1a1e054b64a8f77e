"""The ring: memory in which an engine's record survives the engine.

Its tour: `layout` says where everything lies, and writes that into each ring, so that a reader of
any version finds columns by name; `place` finds room for the file; `packing` turns rows into
bytes; `header` is what a ring says about its engine; `recorder` is the engine's side, with `writer`
inside, `opening` hands it out; `reader` is the collector's side and gives `batch`es. numpy and the
standard library are all it needs.
"""

from __future__ import annotations

from telemetry.ring.batch import Position, RingBatch, RingState
from telemetry.ring.opening import open_recorder
from telemetry.ring.place import ring_directories
from telemetry.ring.reader import RingReader
from telemetry.ring.recorder import RingRecorder

__all__ = [
    "Position",
    "RingBatch",
    "RingReader",
    "RingRecorder",
    "RingState",
    "open_recorder",
    "ring_directories",
]
