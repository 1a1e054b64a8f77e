"""Requests that have ended, as spans: `llm_request` with a child for each stretch of its life.

The spans are those of the view `request_spans`, to the nanosecond and to the id. A `preempted` span
says besides why and at what price, and links to the request that got the room; a `load` span says
what was loaded, and how that ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from opentelemetry.trace import Link, SpanContext, SpanKind

from telemetry.exporters.excerpt import Excerpt, listed, table_rows
from telemetry.exporters.sdk_spans import Row, SpanMaker, request_contexts
from telemetry.exporters.totals import LogReader

BATCH = 64
"""Requests read from the log at once."""
MOST_CHILDREN = 256
"""Stretches of one request that become spans; the rest is counted in an attribute."""

_ENDED = """
SELECT seq, request, ts FROM request_finishes
WHERE engine = {engine}::UBIGINT AND seq >= {seq}
ORDER BY seq LIMIT {limit}
"""
_OLD = """
SELECT count(*) AS num, max(seq) AS newest FROM request_finishes
WHERE engine = {engine}::UBIGINT AND seq >= {seq} AND ts < {since}
"""
_SPANS = f"""
SELECT request, name, s.trace_id, span_id, s.parent_span_id, start_ns, end_ns,
  attributes::VARCHAR AS attributes, a.trace_sampled,
  count(*) OVER (PARTITION BY request) - 1 AS num_children
FROM request_spans s
LEFT JOIN request_arrivals a USING (engine, request)
QUALIFY row_number() OVER (
  PARTITION BY request ORDER BY name <> 'llm_request', start_ns
) <= {MOST_CHILDREN + 1}
ORDER BY request, name <> 'llm_request', start_ns, end_ns
"""
_PREEMPTIONS = """
SELECT 'preempted' AS name, request, ts AS start_ns, preemption_cause_name(cause) AS cause,
  victim_rule_name(victim_rule) AS victim_rule, beneficiary, num_computed_tokens_lost,
  num_output_tokens_kept, num_blocks_needed, num_blocks_freed
FROM request_events WHERE kind = event_kind('preempted')
"""
_LOADS = """
SELECT 'load' AS name, request, started_ts AS start_ns, connector, tier, outcome, num_tokens,
  num_blocks, num_invalid_blocks, policy
FROM connector_loads WHERE started_ts IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that has ended: `seq` is the number of its last event, `ts` its end."""

    seq: int
    request: int
    ts: int


class RequestSpans:
    """Reads ended requests and makes their spans."""

    def __init__(self, log: LogReader, maker: SpanMaker, excerpt: Excerpt) -> None:
        self._log = log
        self._maker = maker
        self._excerpt = excerpt

    def ended(self, engine: int, seq: int) -> list[Ended]:
        """Returns the next requests that ended in event `seq` or later, in order."""
        sql = _ENDED.format(engine=engine, seq=seq, limit=BATCH)
        return [Ended(**row) for row in self._log.query(sql).to_pylist()]

    def older_than(self, engine: int, seq: int, since: int) -> tuple[int, int]:
        """Returns how many requests from `seq` on ended before `since`, and what to go on with."""
        (row,) = self._log.query(_OLD.format(engine=engine, seq=seq, since=since)).to_pylist()
        return row["num"], seq if row["newest"] is None else row["newest"] + 1

    def make(self, engine: int, ended: Sequence[Ended]) -> int:
        """Makes the spans of these requests; returns how many have no arrival in the log."""
        with self._excerpt.holding(self._rows_of(engine, ended)) as excerpt:
            rows = excerpt.rows(_SPANS)
            details = [*excerpt.rows(_PREEMPTIONS), *excerpt.rows(_LOADS)]
        told = _Details(details, self._beneficiaries(engine, details))
        lives = {request: list(life) for request, life in groupby(rows, lambda r: r["request"])}
        num_without_arrival = 0
        for end in ended:
            spans = [told.completed(row) for row in lives.get(end.request, [])]
            if spans and spans[0]["name"] == "llm_request":
                self._maker.make(engine, spans[0], spans[1:], kind=SpanKind.SERVER)
            else:
                num_without_arrival += 1
        return num_without_arrival

    def _rows_of(self, engine: int, ended: Sequence[Ended]) -> dict[str, Any]:
        """Returns all that the log holds of these requests, and the steps that left them waiting.

        Times bound every look, since rows lie in the order of time.
        """
        requests = listed([end.request for end in ended])
        of_engine = f"engine = {engine}::UBIGINT"
        chosen = f"{of_engine} AND request IN ({requests})"
        arrivals = table_rows(self._log, "request_arrivals", chosen)
        last = max(end.ts for end in ended)
        first = min(arrivals["ts"].to_pylist(), default=last)
        within = f"ts BETWEEN {first} AND {last}"
        events = table_rows(self._log, "request_events", f"{chosen} AND {within}")
        seen = set(events["step"].to_pylist())
        steps = listed(sorted(seen | {step + 1 for step in seen})) or "NULL"
        asked = {
            "engines": of_engine,
            "request_finishes": f"{chosen} AND {within}",
            "steps": f"{of_engine} AND {within} AND step IN ({steps})",
        }
        return {
            "request_arrivals": arrivals,
            "request_events": events,
            **{table: table_rows(self._log, table, where) for table, where in asked.items()},
        }

    def _beneficiaries(
        self, engine: int, details: Sequence[Mapping[str, Any]]
    ) -> dict[int, SpanContext]:
        found = {row["beneficiary"] for row in details if row.get("beneficiary") is not None}
        return request_contexts(self._log, engine, sorted(found))


class _Details:
    """What is known of a stretch besides its times, by phase, request and beginning."""

    def __init__(
        self, rows: Sequence[dict[str, Any]], beneficiaries: Mapping[int, SpanContext]
    ) -> None:
        self._beneficiaries = beneficiaries
        self._rows = {
            (row.pop("name"), row.pop("request"), row.pop("start_ns")): row for row in rows
        }

    def completed(self, span: Row) -> dict[str, Any]:
        """Returns a span with its attributes as a mapping, and its links."""
        detail = self._rows.get((span["name"], span["request"], span["start_ns"]), {})
        beneficiary = self._beneficiaries.get(detail.get("beneficiary", -1))
        is_another = beneficiary is not None and detail["beneficiary"] != span["request"]
        return {
            **span,
            "attributes": dict(_attributes(span, detail)),
            "links": [Link(beneficiary)] if beneficiary is not None and is_another else [],
        }


def _attributes(span: Row, detail: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from json.loads(span["attributes"]).items()
    is_root = span["name"] == "llm_request"
    if is_root and span["num_children"] > MOST_CHILDREN:
        yield "stepscope.num_spans_left_out", span["num_children"] - MOST_CHILDREN
    if not is_root and span["end_ns"] is None:
        yield "stepscope.is_open", True
    yield from ((f"stepscope.{name}", value) for name, value in detail.items())
