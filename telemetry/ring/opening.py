"""How an engine gets its recorder: a ring where there is room, else a recorder of nothing."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock
from telemetry.ring.place import ring_directories
from telemetry.ring.recorder import DEFAULT_RING_MB, RingRecorder

_log = logging.getLogger("stepscope")


def open_recorder(
    log: Path | None,
    clock: RunClock,
    *,
    source: str = "stepscope",
    ring_bytes: int | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Recorder:
    """Returns a recorder that writes a ring, or one that records nothing where no room is left.

    `log` is the directory of the step log that the ring belongs to; `None` leaves it to whichever
    collector finds it. `clock` is the engine's own. At most one warning is logged, never an error
    raised.
    """
    failures = []
    for directory in ring_directories(log, environ):
        try:
            size = ring_bytes or configured_ring_bytes(environ)
            recorder = RingRecorder(directory, clock, log=log, source=source, ring_bytes=size)
        except (OSError, ValueError) as error:
            failures.append(f"{directory}: {error}")
            continue
        if failures:
            _log.warning("the ring lies in %s, no place for it in %s", directory, failures[0])
        return recorder
    _log.warning(
        "the engine runs unrecorded, there is no place for a ring: %s. "
        "Free memory there, or set STEPSCOPE_RING_DIR or STEPSCOPE_RING_MB",
        "; ".join(failures),
    )
    return NullRecorder()


def configured_ring_bytes(environ: Mapping[str, str]) -> int:
    """Returns the size of a ring.

    Raises:
        ValueError: STEPSCOPE_RING_MB is not a number of at least 1.
    """
    text = environ.get("STEPSCOPE_RING_MB", str(DEFAULT_RING_MB))
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = 0.0
    if not 1 <= megabytes < 1 << 20:
        raise ValueError(f"STEPSCOPE_RING_MB is {text!r}: it is a number of MiB, at least 1")
    return int(megabytes * (1 << 20))
