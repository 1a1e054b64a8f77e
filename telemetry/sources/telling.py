"""What an import says of itself: what it read, what it could not read, what it brought."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from telemetry.rendering import printable
from telemetry.source_records import ImportRow

MOST_EXAMPLES = 5
LONGEST_EXAMPLE = 120


@dataclass(slots=True, kw_only=True)
class ImportTold:
    """Counts of one import, as it goes on."""

    source: str
    name: str
    unit: str
    num_read: int = 0
    num_unread: int = 0
    num_rows: int = 0
    from_ts: int | None = None
    until_ts: int | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    """How many were read, by kind."""
    examples: list[str] = field(default_factory=list)
    """A few that were not."""
    notes: list[str] = field(default_factory=list)
    """Sentences for whoever reads the result: what the source could not say."""

    def read(self, kind: str, number: int = 1) -> None:
        """Counts what was understood."""
        self.num_read += number
        self.kinds[kind] += number

    def unread(self, example: str, number: int = 1) -> None:
        """Counts what was not understood; keeps the first few, shortened."""
        self.num_unread += number
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(printable(example)[:LONGEST_EXAMPLE])

    def rows(self, moments: Iterable[int]) -> None:
        """Counts rows by their times."""
        for ts in moments:
            self.num_rows += 1
            self.from_ts = ts if self.from_ts is None else min(self.from_ts, ts)
            self.until_ts = ts if self.until_ts is None else max(self.until_ts, ts)

    def row(self, import_id: int) -> ImportRow:
        """Returns the row of `imports`."""
        detail = {"kinds": dict(self.kinds), "unread": self.examples, "notes": self.notes}
        return ImportRow(
            ts=time.time_ns(),
            import_id=import_id,
            source=self.source,
            name=self.name,
            from_ts=self.from_ts,
            until_ts=self.until_ts,
            num_rows=self.num_rows,
            unit=self.unit,
            num_read=self.num_read,
            num_unread=self.num_unread,
            detail=json.dumps(detail),
        )
