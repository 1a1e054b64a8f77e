"""The files of a step log: their names, and how they are attached to a DuckDB instance."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

STORAGE_VERSION = "v1.0.0"
DENSE_BLOCK_BYTES = 64 << 10
"""Block of a dense file. DuckDB's 256 KiB hold one segment of a column of dense rows and waste the
rest; smaller ones cost a tenth of a byte a row less and more than they save in time."""
NS_PER_SECOND = 1_000_000_000
_NS_PER_DAY = 86_400 * NS_PER_SECOND
_EPOCH = date(1970, 1, 1)

_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})(\.dense)?\.duckdb")


@dataclass(frozen=True, slots=True, order=True)
class DayFile:
    """One file of a step log: a UTC day's main rows, or its dense rows."""

    day: str
    dense: bool
    log: Path

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.log / f"{self.day}{'.dense' if self.dense else ''}.duckdb"

    @property
    def wal_path(self) -> Path:
        """Where its write-ahead log lies, while there is one."""
        return self.path.with_name(self.path.name + ".wal")

    @property
    def database(self) -> str:
        """Its name inside an instance."""
        return f"{'dense' if self.dense else 'main'}_{self.day.replace('-', '_')}"


def day_of(ts: int) -> str:
    """Returns the UTC day of a time in nanoseconds since the epoch, as YYYY-MM-DD."""
    return _day(ts // _NS_PER_DAY)


@lru_cache(maxsize=64)
def _day(number: int) -> str:
    """Returns the name of a day, counted since the epoch. Rows come by the million, days do not."""
    return (_EPOCH + timedelta(days=number)).isoformat()


def day_files(log: Path) -> list[DayFile]:
    """Returns the files that a step log has, oldest first."""
    if not log.is_dir():
        return []
    matches = [_NAME.fullmatch(entry.name) for entry in log.iterdir()]
    return sorted(DayFile(m[1], m[2] is not None, log) for m in matches if m is not None)


def is_locked(error: Exception) -> bool:
    """Returns whether DuckDB could not open a file because another process has it."""
    text = str(error)
    return "Could not set lock" in text or "Unique file handle conflict" in text


def attach(connection: Any, file: DayFile, *, read_only: bool) -> None:
    """Attaches a file; a new one is made with mode 0600 and the storage version of DuckDB 1.0."""
    path = str(file.path).replace("'", "''")
    option = "READ_ONLY" if read_only else f"STORAGE_VERSION '{STORAGE_VERSION}'"
    if not read_only and file.dense and not file.path.exists():
        option += f", BLOCK_SIZE {DENSE_BLOCK_BYTES}"
    before = os.umask(0o077)
    try:
        connection.execute(f"ATTACH '{path}' AS {file.database} ({option})")
    finally:
        os.umask(before)


def has_no_room(error: Exception) -> bool:
    """Returns whether the disk, or this user's part of it, is full."""
    text = str(error)
    return "No space left" in text or "quota exceeded" in text
