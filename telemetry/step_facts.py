"""One step as the log holds it: its row, its events in order, its dense rows, who waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from telemetry.errors import StepscopeError

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
"""One row of a query, by column."""

PHASES = ("schedule", "bitmask", "inputs", "forward", "draft", "sample", "connector", "update")
"""The phases of a step in the order they run; `<phase>_ns` in `steps`."""


class LogReader(Protocol):
    """What answers a reading statement: `telemetry.store.Log` does."""

    def query(self, sql: str) -> pa.Table: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """All that is stored of one step.

    `step` is the row that tells it, which may tell several equal steps (`num_repeats`), `asked` the
    number that was asked for. `requests` and `requests_before` (of the step before) are empty where
    dense rows are not stored. `other_engines` hold a step of this number as well.
    """

    asked: int
    step: Row
    engine: Row
    events: Sequence[Row]
    requests: Sequence[Row]
    requests_before: Sequence[Row]
    waiting: Sequence[Row]
    other_engines: Sequence[int] = ()

    def preemptions(self) -> list[Row]:
        """Returns the evictions of the step, in order."""
        return [event for event in self.events if event["kind"] == "preempted"]

    def admissions(self) -> list[Row]:
        """Returns who was let in, in order, resumed ones too."""
        return [event for event in self.events if event["kind"] in ("admitted", "resumed")]

    @property
    def num_blocks_free(self) -> int | None:
        """Free KV blocks once the step was scheduled."""
        unhashed = self.step["num_blocks_free_unhashed"]
        cached = self.step["num_blocks_free_cached"]
        return None if unhashed is None or cached is None else int(unhashed) + int(cached)


def read_step(log: LogReader, number: int, engine: int | None = None) -> StepFacts | None:
    """Returns what the log holds of a step; None if it holds no step at all.

    Without `engine`, of the engine that ran a step of this number last.

    Raises:
        StepscopeError: The log holds steps, but not this one.
    """
    chosen = "" if engine is None else f"AND engine = {engine}"
    found = _rows(
        log,
        "SELECT *, stop_reason_name(stop_reason) AS stop_name FROM steps "
        f"WHERE step <= {number} AND step + num_repeats > {number} {chosen} ORDER BY ts DESC",
    )
    if not found:
        _require_steps_elsewhere(log, number, engine)
        return None
    step = found[0]
    this = f"engine = {step['engine']} AND step = {step['step']}"
    return StepFacts(
        asked=number,
        step=step,
        engine=_engine(log, step["engine"]),
        events=_events(log, this),
        requests=_dense(log, step["engine"], step["step"]),
        requests_before=_dense(log, step["engine"], step["step"] - 1),
        waiting=_rows(
            log,
            f"FROM queue_by_reason_between({step['ts']}, {step['ts']}) WHERE {this} "
            "ORDER BY num_requests DESC, wait_reason",
        ),
        other_engines=[row["engine"] for row in found[1:]],
    )


def _engine(log: LogReader, engine: int) -> Row:
    found = _rows(log, f"FROM engines WHERE engine = {engine} LIMIT 1")
    return found[0] if found else {"engine": engine}


def _events(log: LogReader, this: str) -> list[Row]:
    return _rows(
        log,
        "SELECT * REPLACE (event_kind_name(kind) AS kind, preemption_cause_name(cause) AS cause, "
        "victim_rule_name(victim_rule) AS victim_rule, "
        "CASE WHEN kind = event_kind('skipped') THEN skip_reason_name(reason) END AS reason) "
        f"FROM request_events WHERE {this} ORDER BY seq",
    )


def _dense(log: LogReader, engine: int, step: int) -> list[Row]:
    return _rows(
        log,
        "SELECT * REPLACE (zero_reason_name(zero_reason) AS zero_reason) FROM step_requests "
        f"WHERE engine = {engine} AND step = {step} ORDER BY slot",
    )


def _require_steps_elsewhere(log: LogReader, number: int, engine: int | None) -> None:
    """Raises StepscopeError, saying which steps there are, if there are any."""
    held = _rows(
        log,
        "SELECT engine, min(step) AS first, max(step + num_repeats) - 1 AS last FROM steps "
        "GROUP BY engine ORDER BY max(ts) DESC LIMIT 3",
    )
    if not held:
        return
    wanted = f"step {number:,}" + ("" if engine is None else f" of engine {engine:016x}")
    ranges = "; ".join(
        f"{row['first']:,} to {row['last']:,} of engine {row['engine']:016x}" for row in held
    )
    raise StepscopeError(f"{wanted} is not in the log, which holds steps {ranges}: ask for one")


def _rows(log: LogReader, sql: str) -> list[Row]:
    rows: list[Row] = log.query(sql).to_pylist()
    return rows
