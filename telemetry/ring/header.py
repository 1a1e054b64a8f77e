"""What a ring says about its engine: who it is, and how it is set up."""

from __future__ import annotations

import json
import os
import platform
import socket
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from telemetry.records import NULLS, EngineRow, RunClock
from telemetry.ring.layout import (
    DESCRIPTION_OFFSET,
    DESCRIPTION_SLOT_BYTES,
    LAYOUT_VERSION,
)

_LENGTH = struct.Struct("<I")
_LONGEST_TEXT = 256


def identity(engine: int, clock: RunClock, log: Path | None, source: str) -> dict[str, Any]:
    """Returns what a ring says about the process that writes it.

    `log` is the step log that the ring belongs to; a collector of another log leaves it alone.
    """
    return {
        "layout_version": LAYOUT_VERSION,
        "engine": f"{engine:016x}",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot_id": boot_id(),
        "log": None if log is None else str(log.resolve()),
        "source": source,
        "wall_anchor_ns": clock.wall_anchor_ns,
        "monotonic_anchor_ns": clock.monotonic_anchor_ns,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def boot_id() -> str | None:
    """Returns the id of this boot of the host; None where the host has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def resident_bytes() -> int:
    """Returns the resident memory of this process; NULL where the host does not say."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return NULLS["u8"]


def description_bytes(engine: EngineRow) -> tuple[bytes, int]:
    """Returns an engine's description as one slot holds it, and how many bytes were too many.

    Settings that do not fit are left out and say so; then every other text is cut as well.
    """
    whole = asdict(engine)
    data = _dumps(whole)
    excess = len(data) + _LENGTH.size - DESCRIPTION_SLOT_BYTES
    if excess <= 0:
        return _LENGTH.pack(len(data)) + data, 0
    short = {
        name: value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for name, value in whole.items()
    }
    short["settings"] = json.dumps({"left_out": f"too long by {excess} bytes"})
    data = _dumps(short)
    return _LENGTH.pack(len(data)) + data, excess


def description_from(slot: bytes) -> dict[str, Any]:
    """Returns the description in a slot.

    Raises:
        ValueError: The slot does not hold a whole one.
    """
    (size,) = _LENGTH.unpack_from(slot)
    found = json.loads(slot[_LENGTH.size : _LENGTH.size + size])
    if not isinstance(found, dict):
        raise ValueError("the description is no JSON object")
    return found


def slot_offset(version: int) -> int:
    """Returns where version `version` of the description lies: the two slots take turns."""
    return DESCRIPTION_OFFSET + version % 2 * DESCRIPTION_SLOT_BYTES


def _dumps(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), default=str).encode()
