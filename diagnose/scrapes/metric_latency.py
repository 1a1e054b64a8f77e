"""What histograms say of pauses and of repeated evictions, with the bounds of their buckets.

A percentile of buckets is a pair of bounds; the estimate between them is never judged alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from diagnose.reading import NS, QueryLog, read_rows
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.words import duration

MIN_OBSERVATIONS = 20
"""Fewer make no 99th percentile. Starting value."""

BUCKETS_SQL = """
WITH storm AS (
    SELECT ts FROM metric_intervals_between({{start}}, {{end}})
    WHERE engine = {{engine}} AND source = '{source}' AND num_preemptions > 0
)
SELECT lower_bound, upper_bound,
       coalesce(sum(num_observations) FILTER (in_storm), 0)::BIGINT AS num_storm,
       coalesce(sum(num_observations) FILTER (NOT in_storm), 0)::BIGINT AS num_calm,
       count(num_observations) AS num_known
FROM (SELECT *, ts IN (FROM storm) AS in_storm
      FROM metric_buckets_between({{start}}, {{end}})
      WHERE engine = {{engine}} AND source = '{source}' AND histogram = '{histogram}')
GROUP BY lower_bound, upper_bound ORDER BY upper_bound
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A percentile as far as buckets tell: above `low`, at most `high`; infinite in the last."""

    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Pauses between two tokens, p99, while preemptions were counted and while none was; in s."""

    storm: Bucket
    calm: Bucket

    def is_longer(self, ratio: float, felt_ns: int) -> bool:
        """Whether the tail surely grew by more than a ratio, and long enough to be noticed."""
        return self.storm.low >= self.calm.high * ratio and self.storm.low * NS >= felt_ns

    @property
    def sentence(self) -> str:
        """Returns the two, with their bounds."""
        return (
            f"pauses between two tokens p99 {_between(self.storm)} while preemptions were counted, "
            f"{_between(self.calm)} while none was"
        )


def _between(bucket: Bucket) -> str:
    low = duration(bucket.low * NS)
    return f"over {low}" if math.isinf(bucket.high) else f"{low} to {duration(bucket.high * NS)}"


@dataclass(frozen=True)
class Histograms:
    """The histograms of an engine's scrapes, each read once and only when it is asked for."""

    log: QueryLog
    facts: MetricFacts

    @cached_property
    def pauses(self) -> Tail | None:
        """The tail of pauses in and out of preemptions; `None` where either is not measured."""
        rows = self._buckets("inter_token_latency")
        storm, calm = _percentile(rows, "num_storm"), _percentile(rows, "num_calm")
        return None if storm is None or calm is None else Tail(storm=storm, calm=calm)

    @cached_property
    def most_preemptions(self) -> Bucket | None:
        """How often a request was preempted, p99 of those that ended; `None`: not measured."""
        rows = self._buckets("request_preemptions")
        for row in rows:
            row["num_all"] = row["num_storm"] + row["num_calm"]
        return _percentile(rows, "num_all", least=1)

    def _buckets(self, histogram: str) -> list[dict[str, Any]]:
        sql = BUCKETS_SQL.format(source=self.facts.source, histogram=histogram)
        rows = read_rows(self.log, self.facts.scope.fill(sql))
        return rows if any(row["num_known"] for row in rows) else []


def _percentile(
    rows: list[dict[str, Any]], column: str, *, least: int = MIN_OBSERVATIONS
) -> Bucket | None:
    n = sum(row[column] for row in rows)
    if n < least:
        return None
    upto = 0
    for row in rows:
        upto += row[column]
        if upto >= 0.99 * n:
            return Bucket(low=row["lower_bound"], high=row["upper_bound"], n=n)
    return None
