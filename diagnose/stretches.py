"""For how long something was so: unbroken runs of steps in which a condition held.

A state is judged by how long it lasted, an event by how often it came (`episodes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.finding import Span
from diagnose.reading import Scope
from diagnose.rule import Context

STRETCHES_SQL = """
WITH held AS (
    SELECT step, num_repeats, ts, coalesce(updated_ts, ts) AS until_ts
    FROM {rows} WHERE {where} AND ({condition})
), marked AS (
    SELECT *, (step <> lag(step + num_repeats, 1, 0) OVER (ORDER BY step))::INTEGER AS is_first
    FROM held
), numbered AS (
    SELECT *, sum(is_first) OVER (ORDER BY step ROWS UNBOUNDED PRECEDING) AS stretch FROM marked
)
SELECT min(ts) AS opened_ts, max(until_ts) AS until_ts, sum(num_repeats)::BIGINT AS num_steps,
       max(step + num_repeats) >= (SELECT max(step + num_repeats) FROM steps WHERE {where})
           AS is_last
FROM numbered GROUP BY stretch ORDER BY max(until_ts) - min(ts) DESC, min(ts)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStretch:
    """A run of steps. `is_last` says that it reaches the newest step: it may go on."""

    engine: int
    opened_ts: int
    until_ts: int
    num_steps: int
    is_last: bool

    @property
    def duration_ns(self) -> int:
        """How long it lasted, as far as is recorded."""
        return self.until_ts - self.opened_ts

    @property
    def scope(self) -> Scope:
        """The engine and the stretch, for statements about it."""
        return Scope(self.engine, self.opened_ts, self.until_ts)


def read_stretches(context: Context, condition: str, rows: str = "steps") -> list[StepStretch]:
    """Returns the stretches of steps in which an SQL condition over `steps` held, longest first.

    Args:
        context: engine and window.
        condition: over the columns of `steps`.
        rows: what is read for them, where the condition asks for more than `steps` has.
    """
    sql = STRETCHES_SQL.replace("{condition}", condition).replace("{rows}", rows)
    return [StepStretch(engine=context.scope.engine, **row) for row in context.rows(sql)]


def span_of(context: Context, stretch: StepStretch) -> Span:
    """Returns a stretch as the span of a finding: open while it reaches the newest step.

    An engine that has ended has nothing open.
    """
    is_open = stretch.is_last and context.quality.stopped_ts is None
    return Span(opened_ts=stretch.opened_ts, cleared_ts=None if is_open else stretch.until_ts)
