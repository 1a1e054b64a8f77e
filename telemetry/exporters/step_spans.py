"""Steps as spans, a sample of them: `step` with a child for each phase whose time is known.

The spans are those of the view `step_spans`. A step is a trace of its own and links to the requests
that ran in it: it belongs to many traces, and would be repeated in each as a child. Which steps are
taken follows from their trace ids, as with the SDK's own ratio sampler, so a log gives the same
ones each time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby

from opentelemetry.trace import Link

from telemetry.exporters.excerpt import Excerpt, listed, table_rows
from telemetry.exporters.running import RunningRequests
from telemetry.exporters.sdk_spans import SpanMaker, request_contexts
from telemetry.exporters.totals import LogReader

BATCH = 64
"""Steps read from the log at once."""
MOST_LINKS = 32
"""Requests that a step links to; the rest is counted in an attribute."""

_NEWEST = """
SELECT max(step) AS newest FROM steps WHERE engine = {engine}::UBIGINT AND step >= {step}
"""
_SAMPLED = """
SELECT step FROM step_spans
WHERE engine = {engine}::UBIGINT AND name = 'step' AND step BETWEEN {step} AND {newest}
  AND ts >= {since} AND ('0x' || right(trace_id, 16))::UBIGINT < {bound}::HUGEINT
ORDER BY step LIMIT {limit}
"""
_SPANS = """
SELECT step, name, trace_id, span_id, parent_span_id, start_ns, end_ns,
  attributes::VARCHAR AS attributes
FROM step_spans
ORDER BY step, name <> 'step', start_ns
"""


class StepSpans:
    """Reads sampled steps and makes their spans."""

    def __init__(self, log: LogReader, maker: SpanMaker, excerpt: Excerpt, ratio: float) -> None:
        self._log = log
        self._maker = maker
        self._excerpt = excerpt
        self._bound = round(ratio * (1 << 64))
        self._running: dict[int, RunningRequests] = {}

    def make(self, engine: int, step: int, since: int) -> int | None:
        """Makes the spans of the next sampled steps from `step` on, none that began before `since`.

        Returns:
            The step to go on with; None where there is nothing new.
        """
        (row,) = self._log.query(_NEWEST.format(engine=engine, step=step)).to_pylist()
        newest: int | None = row["newest"]
        if newest is None:
            return None
        sql = _SAMPLED.format(
            engine=engine, step=step, newest=newest, since=since, bound=self._bound, limit=BATCH
        )
        steps = [row["step"] for row in self._log.query(sql).to_pylist()]
        if steps:
            self._make(engine, steps)
        return newest + 1 if len(steps) < BATCH else steps[-1] + 1

    def forget(self, engine: int) -> None:
        """Forgets who runs in an engine: it has ended, or its last steps were not sent."""
        self._running.pop(engine, None)

    def _make(self, engine: int, steps: Sequence[int]) -> None:
        of_engine = f"engine = {engine}::UBIGINT"
        chosen = f"{of_engine} AND step IN ({listed(steps)})"
        rows = {"steps": table_rows(self._log, "steps", chosen)}
        with self._excerpt.holding(rows) as excerpt:
            spans = excerpt.rows(_SPANS)
        linked = self._linked(engine, steps)
        wanted = sorted({number for numbers in linked.values() for number in numbers[:MOST_LINKS]})
        contexts = request_contexts(self._log, engine, wanted)
        for step, told in groupby(spans, lambda row: row["step"]):
            root, *children = [{**row, "attributes": json.loads(row["attributes"])} for row in told]
            numbers = linked[step]
            if len(numbers) > MOST_LINKS:
                root["attributes"]["stepscope.num_links_left_out"] = len(numbers) - MOST_LINKS
            root["links"] = [
                Link(contexts[number]) for number in numbers[:MOST_LINKS] if number in contexts
            ]
            self._maker.make(engine, root, children)

    def _linked(self, engine: int, steps: Sequence[int]) -> dict[int, list[int]]:
        """Returns who ran in each step."""
        if engine not in self._running:
            self._running[engine] = RunningRequests(self._log, engine, steps[0])
        return {step: self._running[engine].in_step(step) for step in steps}
