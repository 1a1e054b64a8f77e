"""What the log takes on disk, how long it is kept, and what has been removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from telemetry.doctor.check import Check
from telemetry.errors import QueryFailed
from telemetry.rendering import bytes_text
from telemetry.store import Log
from telemetry.store.files import day_files
from telemetry.store.presence import find_collector

_REMOVED = """
SELECT count(*) AS num_files, sum(size_bytes)::UBIGINT AS size_bytes, max(day) AS newest_day,
    list_sort(list(DISTINCT limit_name)) AS limits
FROM removed_days
"""


def retention_checks(path: Path, log: Log) -> Iterator[Check]:
    """Yields what is kept and, where days were removed, how many."""
    if path.is_file():
        yield Check("good", "bundle", bytes_text(path.stat().st_size))
        return
    files = day_files(path)
    size = sum(found.path.stat().st_size for found in files if found.path.exists())
    num_days = len({found.day for found in files})
    notice = find_collector(path)
    kept = f"; kept: {notice.kept}" if notice is not None and notice.kept else ""
    days = "day" if num_days == 1 else "days"
    yield Check("good", "size", f"{num_days:,} {days} in {bytes_text(size)}{kept}")
    try:
        removed = log.query(_REMOVED)
    except QueryFailed:  # a live collector of an older version removes nothing
        return
    (row,) = removed.to_pylist()
    if row["num_files"]:
        text = (
            f"{row['num_files']:,} files ({bytes_text(row['size_bytes'])}) by "
            f"{', '.join(row['limits'])}, up to {row['newest_day']}"
        )
        yield Check("good", "removed", text)
