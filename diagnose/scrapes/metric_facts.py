"""What scrapes, or the lines of a log, say of an engine whose steps are not recorded.

One row a scrape, read once from `metric_intervals` and handed to every rule. Inside a series NaN
stands for what was not measured; a rule sees `None` (`Series.max` and the like) or asks
`is_measured`. Where an engine has several sources, the richest is judged and nothing is added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from diagnose.reading import NS, QueryLog, Scope, read_row, read_rows
from diagnose.words import duration, plural
from telemetry.sources.prometheus.names import CANONICAL, LABELS

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Source = Literal["prometheus", "vllm-log"]

SOURCES: tuple[Source, ...] = ("prometheus", "vllm-log")
"""Kinds of samples that are understood, the richest first."""
MIN_SCRAPES = 3
"""Fewer say nothing of what lasts. Source: playbook, `admission-deadlock`: two to three scrapes."""
GAP = 5
"""A pause of so many usual intervals is a gap. Starting value."""

COLUMNS = (
    *("num_running", "num_waiting", "num_waiting_capacity", "num_waiting_deferred"),
    *("num_kv_loads_in_progress", "num_kv_loads_completed", "kv_cache_usage_ratio"),
    *("num_prompt_tokens", "num_generation_tokens", "num_preemptions", "num_finished"),
    *("num_prefix_queries", "num_prefix_hits", "num_drafted_tokens", "num_accepted_tokens"),
    *("num_failed_transfers", "num_expired_requests"),
    *("num_prompt_tokens_total", "num_generation_tokens_total"),
)

PRESENT_SQL = """
SELECT source, count(DISTINCT ts) AS n FROM samples WHERE {where} GROUP BY source
"""
RECORDED_SQL = """
SELECT EXISTS (FROM steps WHERE {where}) OR EXISTS (FROM request_arrivals WHERE {where})
       OR EXISTS (FROM request_events WHERE {where}) OR EXISTS (FROM heartbeats WHERE {where})
       AS is_recorded
"""
ROWS_SQL = f"""
SELECT ts, interval_ns, is_reset, {", ".join(COLUMNS)}
FROM metric_intervals_between({{start}}, {{end}})
WHERE engine = {{engine}} AND source = '{{source}}' ORDER BY ts
"""


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one column, a scrape each; NaN where it was not measured."""

    values: Floats

    @property
    def is_measured(self) -> bool:
        """Whether any scrape has it."""
        return bool(np.isfinite(self.values).any())

    @property
    def max(self) -> float | None:
        """The largest value."""
        return float(np.nanmax(self.values)) if self.is_measured else None

    @property
    def min(self) -> float | None:
        """The smallest value."""
        return float(np.nanmin(self.values)) if self.is_measured else None

    @property
    def sum(self) -> int | None:
        """The sum of counts."""
        return round(float(np.nansum(self.values))) if self.is_measured else None

    @property
    def last(self) -> float | None:
        """The newest value that was measured."""
        known = self.values[np.isfinite(self.values)]
        return float(known[-1]) if len(known) else None

    def within(self, mask: Mask) -> Series:
        """Returns the values at some scrapes."""
        return Series(self.values[mask])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive scrapes, both ends included, in which something was so."""

    first: int
    last: int
    opened_ts: int
    until_ts: int
    is_last: bool
    """Whether it was still so at the newest scrape."""

    @property
    def num_scrapes(self) -> int:
        """Scrapes in it."""
        return self.last - self.first + 1

    @property
    def duration_ns(self) -> int:
        """From its first scrape to its last."""
        return self.until_ts - self.opened_ts

    @property
    def scrapes(self) -> slice:
        """Its scrapes."""
        return slice(self.first, self.last + 1)

    @property
    def intervals(self) -> slice:
        """The intervals between its scrapes."""
        return slice(self.first + 1, self.last + 1)


@dataclass(frozen=True)
class MetricFacts:
    """The scrapes of one engine in one window. `source` is `None` where there are none."""

    scope: Scope
    source: Source | None
    engine_source: str | None
    """What the engine is: vllm, sglang or unknown; that decides how a metric is spelled."""
    ts: Ints
    interval_ns: Floats
    is_reset: Mask
    columns: dict[str, Floats]

    def __getitem__(self, column: str) -> Series:
        return Series(self.columns[column])

    @property
    def num_scrapes(self) -> int:
        """Scrapes, or lines, that say something of the engine."""
        return len(self.ts)

    @property
    def has_enough(self) -> bool:
        """Whether there are enough scrapes to say what lasts."""
        return self.num_scrapes >= MIN_SCRAPES

    @property
    def usual_interval_ns(self) -> int | None:
        """The usual time between two scrapes."""
        return round(float(np.median(np.diff(self.ts)))) if self.num_scrapes > 1 else None

    @property
    def num_resets(self) -> int:
        """Intervals in which a counter fell or another process answered."""
        return int(self.is_reset.sum())

    @property
    def num_gaps(self) -> int:
        """Pauses much longer than the usual one."""
        usual = self.usual_interval_ns
        return 0 if not usual else int((np.diff(self.ts) > GAP * usual).sum())

    @cached_property
    def in_flight(self) -> Series:
        """Requests in the engine: running and waiting."""
        return Series(self.columns["num_running"] + self.columns["num_waiting"])

    @cached_property
    def waiting_for_capacity(self) -> Series:
        """Requests that wait and are not set aside; all that wait where that is not told apart."""
        capacity = self.columns["num_waiting_capacity"]
        return Series(np.where(np.isfinite(capacity), capacity, self.columns["num_waiting"]))

    @cached_property
    def num_tokens(self) -> Series:
        """Prompt and output tokens of each interval; of the one that is measured, if one is."""
        prompts, outputs = self.columns["num_prompt_tokens"], self.columns["num_generation_tokens"]
        known = np.isfinite(prompts) | np.isfinite(outputs)
        return Series(np.where(known, np.nan_to_num(prompts) + np.nan_to_num(outputs), np.nan))

    def per_second(self, column: str) -> Floats:
        """Returns the increases of a counter as rates."""
        return self.columns[column] / (self.interval_ns / NS)

    # ------------------------------------------------------------------------------------- words

    @property
    def noun(self) -> str:
        """What a row is."""
        return "log line" if self.source == "vllm-log" else "scrape"

    @property
    def told_by(self) -> str:
        """Returns `from 24 scrapes alone, 1.00 s apart`."""
        usual = self.usual_interval_ns
        apart = f", {duration(usual)} apart" if usual else ""
        return f"from {plural(self.num_scrapes, self.noun)} alone{apart}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know before believing a number of these."""
        if self.source is None:
            return ("no step record, no scrape and no stats line: nothing is measured",)
        told = [f"{self.told_by}: no causes, victims or lost tokens of preemptions"]
        if self["num_preemptions"].sum:
            told.append("the counter of preemptions lags: a victim is counted with its next output")
        if self.num_resets:
            counted = f"{self.num_resets:,} of {plural(self.num_scrapes - 1, 'interval')}"
            told.append(f"{counted} dropped: a counter fell or another process answered")
        if self.num_gaps:
            told.append(f"{plural(self.num_gaps, 'gap')} between {self.noun}s")
        return tuple(told)

    def spelled(self, column: str) -> str:
        """Returns a column as the engine's page spells it, with its label if it needs one."""
        names = CANONICAL[column]
        prefix = "sglang:" if self.engine_source == "sglang" else "vllm:"
        name = next((each for each in names if each.startswith(prefix)), names[0])
        label = LABELS.get(column, {}).get(name)
        return name if label is None else f'{name}{{{label[0]}="{label[1]}"}}'

    def missing(self, *columns: str) -> tuple[str, ...]:
        """Returns those of the columns that no scrape has, as the page would spell them."""
        return tuple(self.spelled(column) for column in columns if not self[column].is_measured)

    # -------------------------------------------------------------------------------------- SQL

    def sql(self, expression: str, condition: str = "true") -> str:
        """Returns a statement that gives one value over these scrapes."""
        return f"SELECT {expression} AS value FROM {self._scrapes} AND {condition}"

    def sql_with_before(self, column: str, expression: str, condition: str) -> str:
        """Returns the same, where `before` is the column's value at the scrape before."""
        inside = f"SELECT *, lag({column}) OVER (ORDER BY ts) AS before FROM {self._scrapes}"
        return f"SELECT {expression} AS value FROM ({inside}) WHERE {condition}"

    @property
    def _scrapes(self) -> str:
        """The scrapes, as they stand after FROM."""
        scope = self.scope
        return (
            f"metric_intervals_between({scope.start_ts}, {scope.end_ts}) "
            f"WHERE engine = {scope.engine} AND source = '{self.source}'"
        )

    def between(self, stretch: Stretch) -> str:
        """Returns the condition that a scrape lies in a stretch, to stand in `sql`."""
        return f"ts BETWEEN {stretch.opened_ts} AND {stretch.until_ts}"

    def around(self, condition: str) -> str:
        """Returns the condition that a scrape ends or begins an interval of some kind."""
        return f"ts IN (SELECT unnest([ts, previous_ts]) FROM {self._scrapes} AND {condition})"

    # ---------------------------------------------------------------------------------- stretches

    def stretches(self, states: Mask, quiet: Mask | None = None) -> Iterator[Stretch]:
        """Yields the longest runs of scrapes with `states`, and `quiet` in all intervals between.

        Args:
            states: what has to hold at each scrape.
            quiet: what has to hold in the interval that ends at a scrape, but for the first one.
        """
        first: int | None = None
        for index, holds in enumerate(states):
            goes_on = first is not None and holds and (quiet is None or bool(quiet[index]))
            if goes_on:
                continue
            if first is not None:
                yield self._stretch(first, index - 1)
            first = index if holds else None
        if first is not None:
            yield self._stretch(first, len(states) - 1)

    def _stretch(self, first: int, last: int) -> Stretch:
        return Stretch(
            first, last, int(self.ts[first]), int(self.ts[last]), last == self.num_scrapes - 1
        )

    def longest(
        self,
        states: Mask,
        quiet: Mask | None = None,
        *,
        min_scrapes: int = MIN_SCRAPES,
        min_ns: int = 0,
    ) -> Stretch | None:
        """Returns the longest of `stretches` that suffices; one that lasts goes first."""
        found = (
            each
            for each in self.stretches(states, quiet)
            if each.num_scrapes >= min_scrapes and each.duration_ns >= min_ns
        )
        return max(found, key=lambda each: (each.is_last, each.duration_ns), default=None)


def is_recorded(log: QueryLog, scope: Scope) -> bool:
    """Returns whether an engine's own record has anything of it in a window."""
    return bool(read_row(log, scope.fill(RECORDED_SQL))["is_recorded"])


def read_metric_facts(log: QueryLog, scope: Scope, engine_source: str | None) -> MetricFacts:
    """Returns what scrapes, or lines, say of an engine in a window."""
    present = {row["source"]: row["n"] for row in read_rows(log, scope.fill(PRESENT_SQL))}
    source = next((source for source in SOURCES if source in present), None)
    rows: list[dict[str, Any]] = []
    if source is not None:
        sql = ROWS_SQL.format(
            engine=scope.engine, start=scope.start_ts, end=scope.end_ts, source=source
        )
        rows = read_rows(log, sql.strip())
    return MetricFacts(
        scope=scope,
        source=source if rows else None,
        engine_source=engine_source,
        ts=np.array([row["ts"] for row in rows], dtype=np.int64),
        interval_ns=_floats(rows, "interval_ns"),
        is_reset=np.array([row["is_reset"] for row in rows], dtype=np.bool_),
        columns={column: _floats(rows, column) for column in COLUMNS},
    )


def _floats(rows: list[dict[str, Any]], column: str) -> Floats:
    values = (row[column] for row in rows)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
