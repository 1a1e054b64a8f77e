"""The collector's own numbers: what each is called, what it is counted in, which way is better.

A metric has one name, OpenTelemetry's; Prometheus' spelling follows from it by the rules of the
OpenTelemetry specification (dots become underscores, then the unit, then `_total`). Labels never
hold a request's id: every label is an engine start or a word of a closed set, but for the two info
metrics, whose text comes from outside and is bounded.

`docs/metrics.md` lists the same; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge"]
Polarity: TypeAlias = Literal["higher", "lower", "-"]

_UNIT_SUFFIXES = {"s": "_seconds"}
_COUNTED_IN = {"s": "seconds", "": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `unit` is UCUM's: `s`, `{token}`, or nothing for a state that is 0 or 1."""

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    doc: str
    polarity: Polarity

    @property
    def prometheus_name(self) -> str:
        """The name on a Prometheus page, as a query writes it."""
        suffix = _UNIT_SUFFIXES.get(self.unit, "")
        total = "_total" if self.kind == "counter" else ""
        return self.name.replace(".", "_") + suffix + total

    @property
    def counted_in(self) -> str:
        """The unit in words."""
        return _COUNTED_IN.get(self.unit, self.unit.strip("{}") + "s")


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric; `labels` are the values of its labels, in order."""

    labels: tuple[str, ...]
    value: float


Reading: TypeAlias = Mapping[str, Sequence[Sample]]
"""Samples by metric name, at one moment. A number that was not measured has no sample."""


def _counter(name: str, unit: str, labels: str, polarity: Polarity, doc: str) -> Metric:
    return Metric(
        name=name, kind="counter", unit=unit, labels=tuple(labels.split()), doc=doc,
        polarity=polarity,
    )  # fmt: skip


def _gauge(name: str, unit: str, labels: str, polarity: Polarity, doc: str) -> Metric:
    return Metric(
        name=name, kind="gauge", unit=unit, labels=tuple(labels.split()), doc=doc,
        polarity=polarity,
    )  # fmt: skip


PREEMPTIONS = _counter(
    "stepscope.preemptions", "{preemption}", "engine cause", "lower",
    "Preemptions in the log, by PreemptionCause.",
)  # fmt: skip
UNATTRIBUTED = _gauge(
    "stepscope.preemption.unattributed", "{preemption}", "engine", "lower",
    "Preemptions that the scheduler's own counter has and the log has not.",
)  # fmt: skip
TOKENS_LOST = _counter(
    "stepscope.tokens.lost", "{token}", "engine cause", "lower",
    "Computed tokens that preemptions threw away, by PreemptionCause.",
)  # fmt: skip
TOKENS_RECOMPUTED = _counter(
    "stepscope.tokens.recomputed", "{token}", "engine", "lower",
    "Scheduled tokens that had been computed before and were lost to a preemption.",
)  # fmt: skip
TOKENS_SCHEDULED = _counter(
    "stepscope.tokens.scheduled", "{token}", "engine", "higher", "Tokens scheduled in all.",
)  # fmt: skip
STEPS = _counter(
    "stepscope.steps", "{step}", "engine stop_reason", "-",
    "Steps, by the StopReason that ended their admission.",
)  # fmt: skip
BLOCKS = _gauge(
    "stepscope.kv.blocks", "{block}", "engine state", "-",
    "KV blocks after the newest step, by who holds them.",
)  # fmt: skip
FINDING_ACTIVE = _gauge(
    "stepscope.finding.active", "", "engine rule severity silenced", "lower",
    "1 while a finding is open or flapping, 0 once it has cleared or its engine has ended; nothing "
    "where none was found.",
)  # fmt: skip
ANALYST_AGE = _gauge(
    "stepscope.analyst.age", "s", "", "lower",
    "Time since the analyst last judged the log; nothing where the collector has none.",
)  # fmt: skip
DROPPED = _counter(
    "stepscope.records.dropped", "{row}", "engine region", "lower",
    "Rows (of blob: bytes) that the ring overwrote before they were drained.",
)  # fmt: skip
RECORDER_ERRORS = _counter(
    "stepscope.recorder.errors", "{error}", "engine", "lower",
    "Errors that the engine's recorder swallowed.",
)  # fmt: skip
BLIND = _gauge(
    "stepscope.recorder.blind", "", "engine", "lower",
    "1 where an engine steps and nothing is recorded of it, or its ring is lost.",
)  # fmt: skip
DRAIN_LAG = _gauge(
    "stepscope.drain.lag", "s", "engine", "lower",
    "Age of the oldest record that may not be in the log yet.",
)  # fmt: skip
UP = _gauge(
    "stepscope.engine.up", "", "engine", "higher",
    "1 where the engine lives; 0 for a quarter of an hour after its end.",
)  # fmt: skip
HEARTBEAT_AGE = _gauge(
    "stepscope.engine.heartbeat_age", "s", "engine", "lower",
    "Time since the living engine's last heartbeat.",
)  # fmt: skip
ENGINE_INFO = _gauge(
    "stepscope.engine.info", "", "engine model source version host", "-",
    "Always 1: what an engine said of itself.",
)  # fmt: skip
BUILD_INFO = _gauge(
    "stepscope.build.info", "", "version schema duckdb", "-",
    "Always 1: versions of the collector, of the log's tables and of DuckDB.",
)  # fmt: skip
COLLECTOR_CPU = _counter(
    "stepscope.collector.cpu", "s", "", "lower",
    "CPU time of the collector, since it started: what recording costs beside the engines.",
)  # fmt: skip
SPANS_EXPORTED = _counter(
    "stepscope.otlp.spans.exported", "{span}", "", "-",
    "Spans that the receiver acknowledged, since the collector started.",
)  # fmt: skip
EXPORT_FAILURES = _counter(
    "stepscope.otlp.export.failures", "{failure}", "signal", "lower",
    "Exports that the receiver did not acknowledge, since the collector started.",
)  # fmt: skip
PASSED_OVER = _counter(
    "stepscope.otlp.requests.passed_over", "{request}", "", "lower",
    "Requests never exported: too old when the receiver was back, or without an arrival in the "
    "log; since the collector started.",
)  # fmt: skip

METRICS: tuple[Metric, ...] = (
    PREEMPTIONS, UNATTRIBUTED, TOKENS_LOST, TOKENS_RECOMPUTED, TOKENS_SCHEDULED, STEPS, BLOCKS,
    FINDING_ACTIVE, ANALYST_AGE, DROPPED, RECORDER_ERRORS, BLIND, DRAIN_LAG, UP, HEARTBEAT_AGE,
    ENGINE_INFO, BUILD_INFO, COLLECTOR_CPU, SPANS_EXPORTED, EXPORT_FAILURES, PASSED_OVER,
)  # fmt: skip
"""Every metric of the collector, in the order of its page."""
