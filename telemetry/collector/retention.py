"""Which days a step log may lose: by age, and by its size in all.

A limit removes whole files, dense ones first and the oldest first. Today's files stay whatever
the limits say, and so does a file that says how far a running engine's ring was read: without it
the ring would be read again from its beginning. Nothing is removed unless somebody has set a limit.

Who removes is the collector, through the writer that has the files open: see `LogWriter.remove`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from telemetry.errors import StepscopeError
from telemetry.rendering import bytes_text
from telemetry.store.files import DayFile, day_files, day_of

CHECK_SECONDS = 60.0
PATIENCE_SECONDS = 300.0
"""Removal waits so long for running queries, which it would interrupt."""

VARIABLES = {
    "keep_days": "STEPSCOPE_KEEP_DAYS",
    "keep_dense_days": "STEPSCOPE_KEEP_DENSE_DAYS",
    "max_bytes": "STEPSCOPE_MAX_BYTES",
}
"""The environment variable of each limit, which holds where no flag does."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """What a log may hold; None is no limit."""

    keep_days: int | None = None
    """A day goes once it lies more than so many days before today."""
    keep_dense_days: int | None = None
    """The same for its dense rows, which go with the day in any case."""
    max_bytes: int | None = None
    """Size of all files together, beyond which the oldest go."""

    def __str__(self) -> str:
        parts = [
            "" if self.keep_days is None else f"{self.keep_days} days",
            "" if self.keep_dense_days is None else f"dense rows {self.keep_dense_days} days",
            "" if self.max_bytes is None else f"at most {bytes_text(self.max_bytes)}",
        ]
        return ", ".join(filter(None, parts)) or "everything"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the log and what it takes on disk, bytes."""

    file: DayFile
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Removal:
    """A file that has to go, and the limit that says so."""

    stored: StoredFile
    limit_name: str


def read_limits(
    environment: Mapping[str, str],
    *,
    keep_days: str | None = None,
    keep_dense_days: str | None = None,
    max_bytes: str | None = None,
) -> RetentionLimits:
    """Returns the limits that the flags name, else the environment.

    Raises:
        StepscopeError: One of them is no number of days, or no size.
    """
    flags = {"keep_days": keep_days, "keep_dense_days": keep_dense_days, "max_bytes": max_bytes}
    given = {name: flag or environment.get(VARIABLES[name]) for name, flag in flags.items()}
    return RetentionLimits(
        keep_days=_days("--keep-days", given["keep_days"]),
        keep_dense_days=_days("--keep-dense-days", given["keep_dense_days"]),
        max_bytes=_bytes("--max-bytes", given["max_bytes"]),
    )


def _days(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,5}", text.strip()):
        raise StepscopeError(f"{flag} is {text!r}: write a whole number of days, 0 keeps today")
    return int(text)


def _bytes(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise StepscopeError(f"{flag} is {text!r}: write a size above 0, like 500M or 20G")
    return int(float(match[1]) * 1024 ** _POWERS[(match[2] or "").lower()])


def stored_files(log: Path) -> list[StoredFile]:
    """Returns the files of a log with their sizes, oldest first."""
    return [StoredFile(file, _size(file)) for file in day_files(log)]


def _size(file: DayFile) -> int:
    size = 0
    for path in (file.path, file.wal_path):
        try:
            size += path.stat().st_size
        except OSError:
            continue
    return size


def removals(
    stored: Iterable[StoredFile],
    limits: RetentionLimits,
    *,
    now_ns: int,
    in_use: Collection[DayFile],
) -> list[Removal]:
    """Returns what has to go now, in the order in which it goes.

    Args:
        now_ns: the wall clock, ns since the Unix epoch.
        in_use: files that stay whatever the limits say; today's do so anyway.
    """
    today = day_of(now_ns)
    stored = sorted(stored, key=lambda each: (not each.file.dense, each.file.day))
    total = sum(each.size_bytes for each in stored)
    found = []
    for each in stored:
        if each.file.day >= today or each.file in in_use:
            continue
        if limit_name := _outlived(each.file, limits, today):
            found.append(Removal(each, limit_name))
    total -= sum(removal.stored.size_bytes for removal in found)
    gone = {removal.stored for removal in found}
    for each in stored:
        if limits.max_bytes is None or total <= limits.max_bytes:
            break
        if each.file.day < today and each.file not in in_use and each not in gone:
            found.append(Removal(each, "max_bytes"))
            total -= each.size_bytes
    return found


def _outlived(file: DayFile, limits: RetentionLimits, today: str) -> str | None:
    """Returns the limit of age that a file is beyond."""
    try:
        age = (date.fromisoformat(today) - date.fromisoformat(file.day)).days
    except ValueError:  # a file named after a day that there is not
        return None
    if limits.keep_days is not None and age > limits.keep_days:
        return "keep_days"
    if file.dense and limits.keep_dense_days is not None and age > limits.keep_dense_days:
        return "keep_dense_days"
    return None
