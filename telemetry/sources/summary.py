"""What a person reads once an import is done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from telemetry.rendering import printable
from telemetry.sources.telling import ImportTold


def summary(told: ImportTold) -> str:
    """Returns what was read, what was not, and what the source could not say."""
    return "\n".join(printable(line) for line in _lines(told))


def _lines(told: ImportTold) -> Iterator[str]:
    yield f"{told.name}: {told.num_rows:,} rows of {told.num_read:,} {told.unit}"
    if len(told.kinds) > 1:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in told.kinds.most_common())
        yield f"  {told.unit:<9} {kinds}"
    if told.from_ts is not None and told.until_ts is not None:
        yield f"  times     {_utc(told.from_ts)} to {_utc(told.until_ts)} UTC"
    yield f"  not read  {told.num_unread:,}"
    yield from (f"            {example}" for example in told.examples)
    yield from (f"  note      {note}" for note in told.notes)


def _utc(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts // 10**9, UTC):%Y-%m-%d %H:%M:%S}"
