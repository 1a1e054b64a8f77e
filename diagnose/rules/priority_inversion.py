"""priority-inversion: an urgent request waits for a slot that a less urgent one holds.

What it measures
----------------
Under the policy `priority`, the time that a request spent in the queue while admission ended at the
slots and a less urgent request was running. The rule fires from one second on.

Why it matters
--------------
Priorities decide who is admitted next and who is evicted for blocks, but a slot is never taken
away: the most urgent request waits until somebody has written the last token.

When it stays quiet
-------------------
Without priorities nothing is inverted. A request that was admitted at once and is slow among many
others did not wait. Where blocks, not slots, are short, the less urgent one is evicted.

What to do
----------
Keep slots to spare (`max_num_seqs` above what usually runs), or give urgent traffic an engine of
its own.

Source
------
Report of an urgent request behind a full running list. One second: starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, ruled_out, span_to, unused, waited
from diagnose.words import count, duration, plural

ID = "priority-inversion"

MIN_INVERTED_NS = NS
"""Time in the queue beside a less urgent running request. Starting value."""
MOST_WAITS = 1000
"""Longest waits that are looked at."""

SQL = f"""
WITH life AS (
    SELECT i.request, i.phase, i.start_ts, i.start_ts + i.duration_ns AS until_ts,
           a.priority, a.request_id
    FROM request_intervals AS i JOIN request_arrivals AS a USING (engine, request)
    WHERE i.engine = {{engine}} AND i.phase <> 'load'
      AND i.start_ts <= {{end}} AND i.start_ts + i.duration_ns >= {{start}}
), waits AS (
    SELECT * FROM life
    WHERE phase IN ('queued', 'preempted') AND priority < (SELECT max(priority) FROM life)
      AND EXISTS (
          FROM admission_stops AS s
          WHERE s.engine = {{engine}} AND s.ts BETWEEN start_ts AND until_ts
            AND s.stop_reason IN ('max_num_seqs', 'max_num_active_seqs')
      )
    ORDER BY until_ts - start_ts DESC LIMIT {MOST_WAITS}
), beside AS (
    SELECT w.request, any_value(w.request_id) AS request_id, any_value(w.priority) AS priority,
           min(w.start_ts) AS start_ts, max(w.until_ts) AS until_ts,
           max(r.priority) AS runs_priority,
           max(least(w.until_ts, r.until_ts) - greatest(w.start_ts, r.start_ts)) AS inverted_ns
    FROM waits AS w JOIN life AS r
      ON r.phase IN ('prefill', 'decode', 'recompute') AND r.priority > w.priority
     AND r.start_ts < w.until_ts AND r.until_ts > w.start_ts
    GROUP BY w.request
)
SELECT request, request_id, priority, runs_priority, start_ts, until_ts,
       inverted_ns::BIGINT AS inverted_ns
FROM beside ORDER BY inverted_ns DESC, request
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where urgency did not get a slot."""
    if context.settings.policy is not None and context.settings.policy != "priority":
        return unused(ID, "priorities", f"policy {context.settings.policy}")
    lacks = lacking(context, ID, "request_arrivals", "priority") or lacking(
        context, ID, "steps", "stop_reason"
    )
    if lacks is not None:
        return lacks
    inverted = [row for row in context.rows(SQL) if row["inverted_ns"] >= MIN_INVERTED_NS]
    if not inverted:
        return healthy(ID, "priorities", "no urgent request waited a second for a slot")
    return _finding(context, inverted)


def _finding(context: Context, inverted: list[dict[str, Any]]) -> Finding:
    worst, sql = inverted[0], context.scope.fill(SQL)
    until = max(row["until_ts"] for row in inverted)
    lasted, slots = duration(worst["inverted_ns"]), count(context.settings.slots)
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=span_to(context, min(row["start_ts"] for row in inverted), until),
        sentence=f"{plural(len(inverted), 'urgent request')} waited for a slot while less urgent "
        f"ones held all {slots}: request {worst['request']} (priority {worst['priority']}) for "
        f"{lasted} beside priority {worst['runs_priority']}",
        symptom=f"up to {lasted} in the queue beside a less urgent running request",
        cause=Cause(
            kind="setting",
            sentence=f"setting: max_num_seqs is {slots}, and a slot is never taken away",
        ),
        confidence=("high", "priorities, slots and the time of each are recorded"),
        rejected=ruled_out(
            ("KV shortage", f"{context.accounting.num_from_kv:,} preemptions for want of blocks"),
        ),
        evidence=(
            measured(
                "longest wait beside a less urgent running request", worst["inverted_ns"], "ns",
                sql, threshold=MIN_INVERTED_NS, n=len(inverted),
            ),
        ),
        impact=Impact(
            cost=(f"{plural(len(inverted), 'urgent request')} waited, up to {lasted}",),
            numbers=(("num_inverted", len(inverted)), ("inverted_ns", worst["inverted_ns"])),
        ),
        affected=tuple(
            waited(row["request"], row["request_id"], row["inverted_ns"]) for row in inverted[:10]
        ),
        num_affected=len(inverted),
        actions=_actions(context),
    )  # fmt: skip


def _actions(context: Context) -> tuple[Action, ...]:
    apart = advise(
        "give urgent traffic an engine of its own", applies="client", trade_off="another engine"
    )
    slots = context.settings.max_num_seqs
    if slots is None:
        return (apart,)
    spare = advise(
        "have slots to spare, a quarter more",
        flag="--max-num-seqs",
        old=slots,
        new=slots + max(slots // 4, 1),
        trade_off="larger batches: more time between tokens, more KV blocks",
    )
    return spare, apart


RULE = Rule(
    id=ID,
    version=1,
    prefix="pin",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("admission-deadlock",),
)
