"""remote-kv-wait-stuck: requests wait for KV blocks from elsewhere that do not come.

What it measures
----------------
How long requests wait for a KV load, or for the connector's answer to a look-up. The rule fires
where one waited for 120 seconds, and three times as long as 99 % of the loads that came; it says
who, and how many KV blocks their loads hold.

Why it matters
--------------
Such a request can be neither run nor evicted, and without a time-out it waits for ever. The blocks
that its load was given are lost to the others.

When it stays quiet
-------------------
A connector that is slow and brings what was asked for moves: each load is held against those that
came. Without a connector nobody waits for one. Requests that grammars, adapters or encoder outputs
keep waiting have reasons of their own.

What to do
----------
Give loads a time-out, choose what happens when one fails, look at the producer's queue and the
link. Many that began at one moment point to the producer, one at a time to the link.

Source
------
Reports of decode engines whose producers died in a transfer or in the handshake. 120 s and three
times the 99th percentile: the playbook's starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.causes.chain import links
from diagnose.finding import Cause, Finding, Impact, Link, RuleVerdict, Severity, Span
from diagnose.reading import NS, Scope, read_row, read_rows
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, ruled_out, unused, waited
from diagnose.words import connector_name, count, duration, plural

ID = "remote-kv-wait-stuck"

MIN_STUCK_NS = 120 * NS
"""How long nothing may come back. Source: playbook."""
MIN_TIMES_P99 = 3
"""How many times as long as 99 % of the finished loads. Source: playbook."""
NEAR_NS = 5 * NS
"""Waits that began within so long of each other count as one moment. Starting value."""

LOADS_SQL = """
SELECT count(*) AS num_finished, max(l.ended_ts) AS last_ts,
       quantile_cont(l.load_ns, 0.99)::BIGINT AS p99_ns
FROM connector_loads AS l LEFT JOIN request_finishes AS f USING (engine, request)
WHERE l.engine = {engine} AND l.ended_ts BETWEEN {start} AND {end}
  AND l.outcome = 'finished' AND l.item_key IS NULL
  AND (f.ts IS NULL OR f.ts > l.ended_ts)  -- a load that ends when its request is given up
"""

WAITS_SQL = """
WITH looked_up AS (
    SELECT request, kind, ts, lead(ts) OVER (PARTITION BY request ORDER BY seq) AS end_ts
    FROM request_events
    WHERE engine = {engine} AND ts <= {end} AND request IS NOT NULL
      AND kind IN (event_kind('lookup_pending'), event_kind('lookup_answered'))
), waits AS (
    SELECT request, coalesce(started_ts, ts) AS start_ts, ended_ts AS end_ts, num_blocks
    FROM connector_loads WHERE engine = {engine} AND ts <= {end} AND item_key IS NULL
    UNION ALL
    SELECT request, ts, end_ts, 0
    FROM looked_up WHERE kind = event_kind('lookup_pending')
)
SELECT w.request, a.request_id, w.start_ts, w.num_blocks::BIGINT AS num_blocks,
       coalesce(w.end_ts, {end} + 1) > {end} AS holds_blocks,
       least(w.end_ts, f.ts, {end}) = {end} AS is_open,
       (least(w.end_ts, f.ts, {end}) - w.start_ts)::BIGINT AS waited_ns
FROM waits AS w
LEFT JOIN request_finishes AS f ON f.engine = {engine} AND f.request = w.request
LEFT JOIN request_arrivals AS a ON a.engine = {engine} AND a.request = w.request
WHERE coalesce(w.end_ts, {end}) >= {start}
ORDER BY waited_ns DESC, w.request
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a request waits for KV much longer than such a wait takes."""
    if context.settings.kv_connector is None:
        return unused(ID, "remote KV", "no connector")
    scope = _until_it_ended(context)
    loads = read_row(context.log, scope.fill(LOADS_SQL))
    waits = read_rows(context.log, scope.fill(WAITS_SQL))
    least = max(MIN_STUCK_NS, MIN_TIMES_P99 * (loads["p99_ns"] or 0))
    stuck = [wait for wait in waits if wait["waited_ns"] >= least]
    if not stuck:
        longest = duration(waits[0]["waited_ns"]) if waits else "none"
        number = f"{plural(loads['num_finished'], 'load')} came, longest wait {longest}"
        return healthy(ID, "remote KV", number)
    return _finding(context, scope, loads, stuck, least)


def _until_it_ended(context: Context) -> Scope:
    """Returns the window as far as the engine lived: nobody waits longer."""
    scope, stopped = context.scope, context.quality.stopped_ts
    until = context.newest_ts if stopped is None else min(stopped, context.newest_ts)
    return Scope(scope.engine, scope.start_ts, until)


def _finding(
    context: Context,
    scope: Scope,
    loads: dict[str, Any],
    stuck: list[dict[str, Any]],
    least: int,
) -> Finding:
    sql, longest = scope.fill(WAITS_SQL), stuck[0]["waited_ns"]
    num_open = len({wait["request"] for wait in stuck if wait["is_open"]})
    num_requests = len({wait["request"] for wait in stuck})
    held = sum(wait["num_blocks"] or 0 for wait in stuck if wait["holds_blocks"])
    connector = connector_name(context.settings.kv_connector)
    came = plural(loads["num_finished"], "other load")
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=_span(context, stuck),
        sentence=f"{plural(num_requests, 'request')} waited up to {duration(longest)} for KV "
        f"through {connector}; {num_open:,} still wait, and their loads hold {count(held)} KV "
        f"blocks; {came} came",
        symptom=f"{plural(num_requests, 'request')} waiting for KV, up to {duration(longest)}",
        cause=Cause(kind="stuck_loads", sentence=f"stuck loads: {_when(stuck)}"),
        confidence=("high", "begin and end of each load are recorded"),
        rejected=ruled_out(
            ("a slow connector", f"99 % of the loads that came took {duration(loads['p99_ns'])}"),
        ),
        evidence=(
            measured(
                "longest wait for KV", longest, "ns", sql, threshold=least, n=len(stuck),
                baseline=loads["p99_ns"],
            ),
            measured("requests that still wait", num_open, "requests", sql, n=num_requests),
            measured("KV blocks held by such loads", held, "blocks", sql, n=len(stuck)),
            measured(
                "loads that came", loads["num_finished"], "loads", scope.fill(LOADS_SQL)
            ),
        ),
        impact=Impact(
            cost=(f"{plural(num_requests, 'request')} got nothing, {count(held)} blocks held",),
            numbers=(
                ("num_waiting", num_open), ("num_stuck", num_requests), ("num_blocks", held),
                ("stuck_ns", longest),
            ),
        ),
        affected=tuple(
            waited(wait["request"], wait["request_id"], wait["waited_ns"]) for wait in stuck[:10]
        ),
        num_affected=num_requests,
        chain=_chain(stuck, _span(context, stuck)),
        actions=(
            advise(
                "give loads a time-out and choose what happens when one fails; look at the "
                "producer and the link",
                trade_off="a slow load fails instead of coming late",
            ),
        ),
    )  # fmt: skip


def _when(stuck: list[dict[str, Any]]) -> str:
    """Returns whether the waits began at one moment, which points to the other side."""
    begins = sorted(wait["start_ts"] for wait in stuck)
    if len(begins) > 1 and begins[-1] - begins[0] <= NEAR_NS:
        return f"{plural(len(begins), 'wait')} began at one moment: look at the producer"
    return f"{plural(len(begins), 'wait')} began one after the other: look at link and store"


def _chain(stuck: list[dict[str, Any]], span: Span) -> tuple[Link, ...]:
    first = min(stuck, key=lambda wait: wait["start_ts"])
    asked = f"request {first['request']} began to wait for KV, and it did not come"
    last = max(wait["start_ts"] + wait["waited_ns"] for wait in stuck)
    left = f"{plural(len({wait['request'] for wait in stuck}), 'request')} had got nothing"
    cause = Cause(kind="stuck_loads", sentence=f"stuck loads: {_when(stuck)}")
    return links(cause, span.opened_ts, asked, span.opened_ts, left, last)


def _span(context: Context, stuck: list[dict[str, Any]]) -> Span:
    is_open = any(wait["is_open"] for wait in stuck) and context.quality.stopped_ts is None
    last = max(wait["start_ts"] + wait["waited_ns"] for wait in stuck)
    return Span(
        opened_ts=min(wait["start_ts"] for wait in stuck), cleared_ts=None if is_open else last
    )


RULE = Rule(id=ID, version=2, prefix="rkw", page=__doc__ or "", decide=decide)
