"""What a person reads once an import is done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from telemetry.rendering import printable
from telemetry.sources.telling import ImportTold


def summary(told: ImportTold, log: Path) -> str:
    """Returns what was read, what was not understood, and what the source could not say."""
    return "\n".join(printable(line) for line in _lines(told, log))


def _lines(told: ImportTold, log: Path) -> Iterator[str]:
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in told.kinds.most_common())
    read = f"{told.num_read:,} {told.unit}" + (f" ({kinds})" if kinds else "")
    yield f"{read} of {told.name} are {told.num_rows:,} rows in {log}"
    if told.from_ts is not None and told.until_ts is not None:
        yield f"  they reach from {_utc(told.from_ts)} to {_utc(told.until_ts)} UTC"
    if told.num_unread:
        yield f"  {told.num_unread:,} not understood, among them:"
        yield from (f"    {example}" for example in told.examples)
    yield from (f"  note: {note}" for note in told.notes)


def _utc(ts: int) -> str:
    return datetime.fromtimestamp(ts / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
