"""lora-slot-contention: requests wait because all adapter slots are taken.

What it measures
----------------
Requests that were set aside because their adapter had no slot, and for how long: three or more, one
of them for a second or longer, while as many adapters ran as `max_loras` allows.

Why it matters
--------------
A request for one more adapter is set aside, and some versions hold up everybody behind it. First
tokens jump by orders of magnitude with the first adapter too many.

When it stays quiet
-------------------
Waiting requests whose adapters run already wait for something else; grammars and remote KV have
reasons of their own.

What to do
----------
More adapter slots (`max_loras`), or route each adapter to engines of its own.

Source
------
Report of four slots and a fifth adapter that blocked the queue; public measurement of 40 ms to 6.3
s at the first adapter too many. One half, three and one second: starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, ruled_out, unused, waited
from diagnose.words import duration, harmless, plural

ID = "lora-slot-contention"

MIN_WAITS = 3
"""Requests that waited for an adapter slot. Starting value."""
MIN_WAIT_NS = NS
"""The longest of their waits. Starting value."""

SQL = """
WITH began AS (
    SELECT request, min(ts) AS start_ts FROM request_events
    WHERE engine = {engine} AND ts <= {end} AND kind = event_kind('skipped')
      AND reason = skip_reason('lora_slots') GROUP BY request
), ended AS (
    SELECT request, min(ts) AS end_ts FROM request_events
    WHERE engine = {engine} AND ts <= {end}
      AND kind IN (event_kind('admitted'), event_kind('finished')) GROUP BY request
)
SELECT b.request, a.request_id, a.adapter, b.start_ts, e.end_ts,
       (coalesce(e.end_ts, {end}) - b.start_ts)::BIGINT AS wait_ns
FROM began AS b LEFT JOIN ended AS e ON e.request = b.request AND e.end_ts >= b.start_ts
LEFT JOIN request_arrivals AS a ON a.engine = {engine} AND a.request = b.request
WHERE coalesce(e.end_ts, {end}) >= {start}
ORDER BY wait_ns DESC, b.request
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where adapters wait for slots that others hold."""
    if context.settings.max_loras is None:
        return unused(ID, "adapters", "not in use")
    waits = context.rows(SQL)
    longest = waits[0]["wait_ns"] if waits else None
    if len(waits) < MIN_WAITS or longest is None or longest < MIN_WAIT_NS:
        number = f"{plural(len(waits), 'request')} waited, longest {duration(longest)}"
        return healthy(ID, "adapter slots", number)
    return _finding(context, waits, context.settings.max_loras)


def _finding(context: Context, waits: list[dict[str, Any]], slots: int) -> Finding:
    sql, longest = context.scope.fill(SQL), waits[0]["wait_ns"]
    still = [row for row in waits if row["end_ts"] is None]
    is_open = bool(still) and context.quality.stopped_ts is None
    names = sorted({harmless(row["adapter"]) for row in waits})
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=Span(
            opened_ts=min(row["start_ts"] for row in waits),
            cleared_ts=None
            if is_open
            else max(row["end_ts"] or context.newest_ts for row in waits),
        ),
        sentence=f"{plural(len(waits), 'request')} of {plural(len(names), 'adapter')} waited for "
        f"one of {plural(slots, 'adapter slot')}, up to {duration(longest)}",
        symptom=f"longest wait for an adapter slot {duration(longest)}",
        cause=Cause(
            kind="more_adapters",
            sentence=f"adapters: {', '.join(names[:5])} asked for slots that others held; "
            f"max_loras is {slots}",
        ),
        confidence=("high", "the reason of each wait is recorded"),
        rejected=ruled_out(("grammars, remote KV", "they have reasons of their own")),
        evidence=(
            measured("longest wait for a slot", longest, "ns", sql, threshold=MIN_WAIT_NS,
                     n=len(waits)),
            measured("requests that waited for one", len(waits), "requests", sql,
                     threshold=MIN_WAITS),
        ),
        impact=Impact(
            cost=(f"{plural(len(waits), 'request')} waited, up to {duration(longest)}",),
            numbers=(("num_waits", len(waits)), ("longest_ns", longest)),
        ),
        affected=tuple(
            waited(row["request"], row["request_id"], row["wait_ns"]) for row in waits[:10]
        ),
        num_affected=len(waits),
        actions=_actions(slots, len(names)),
    )  # fmt: skip


def _actions(slots: int, num_waiting: int) -> tuple[Action, ...]:
    return (
        advise(
            "give every adapter in use a slot",
            flag="--max-loras",
            old=slots,
            new=slots + num_waiting,
            trade_off="each slot takes device memory from the KV pool",
        ),
        advise(
            "route each adapter to engines of its own", applies="client", trade_off="less balance"
        ),
    )


RULE = Rule(
    id=ID,
    version=2,
    prefix="lsc",
    page=__doc__ or "",
    decide=decide,
)
