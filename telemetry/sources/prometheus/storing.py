"""Samples on their way into a log: a row for each engine that a series tells of.

What is in the log already is left out: a scrape is told by its engine and its moment, so the same
directory may be imported again once there is more in it, and windows may overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from telemetry.sources.importing import Import
from telemetry.sources.prometheus.engines import SOURCE, Engines
from telemetry.sources.prometheus.series import Series
from telemetry.sources.rows import Row


def sample_rows(
    engines: Engines, ts: int, samples: Iterable[tuple[Series, float]]
) -> Iterator[Row]:
    """Yields rows of `samples` for what was scraped at `ts`."""
    for series, value in samples:
        for engine in engines.numbers(series):
            yield {
                "engine": engine,
                "ts": ts,
                "source": SOURCE,
                "metric": series.metric,
                "labels": series.labels_json,
                "value": value,
            }


class Storing:
    """Puts samples into an import, those that the log has not yet."""

    def __init__(self, job: Import, engines: Engines, there: Mapping[int, Collection[int]]) -> None:
        """`there` holds the moments of which the log has samples, by engine."""
        self._job = job
        self._engines = engines
        self._there = there
        self._num_described = -1
        self.num_there = 0
        """Samples that were left out, as the log has their scrape."""

    def put(self, ts: int, samples: Iterable[tuple[Series, float]]) -> int:
        """Stores what was scraped at one moment; returns how many samples are new."""
        self._describe(ts)
        rows, new = 0, []
        for row in sample_rows(self._engines, ts, samples):
            rows += 1
            if ts not in self._there.get(row["engine"], ()):
                new.append(row)
        self.num_there += rows - len(new)
        self._job.add("samples", new)
        return len(new)

    def _describe(self, ts: int) -> None:
        if self._num_described == self._engines.num_changes:
            return
        self._num_described = self._engines.num_changes
        for engine, row in self._engines.rows(ts).items():
            self._job.describe(engine, row)
