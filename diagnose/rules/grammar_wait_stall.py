"""grammar-wait-stall: requests wait for their grammars to be compiled.

What it measures
----------------
How long each constrained request was set aside for its grammar: from the moment it was, to the
grammar or the request's end. The rule fires where one waited longer than two seconds, and is
critical where it still does after a minute.

Why it matters
--------------
Schemas are compiled one after the other beside the step loop. A burst of new ones makes the last
wait for all, and a compile that failed without anybody noticing is waited for for ever.

When it stays quiet
-------------------
Filling bitmasks costs time in each step, and nobody waits for it: `grammar-step-cost`. Remote KV
and adapters set requests aside for other reasons.

What to do
----------
Use few schemas and the same ones again, compile them before traffic comes, give requests a
time-out.

Source
------
Reports of bursts of schemas, and of a compile that failed and left its request waiting. 2 s: the
playbook's starting value; a minute: starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, ruled_out, unused, waited
from diagnose.words import duration, plural

ID = "grammar-wait-stall"

MIN_WAIT_NS = 2 * NS
"""How long one may wait. Source: playbook."""
STUCK_NS = 60 * NS
"""A wait that is still open after so long is taken for one that never ends. Starting value."""

SQL = """
WITH began AS (
    SELECT request, min(ts) AS start_ts
    FROM request_events
    WHERE engine = {engine} AND ts <= {end} AND request IS NOT NULL
      AND (kind = event_kind('grammar_started')
           OR (kind = event_kind('skipped') AND reason = skip_reason('grammar_compiling')))
    GROUP BY request
), ended AS (
    SELECT request, min(ts) AS end_ts,
           bool_or(kind = event_kind('grammar_failed')) AS has_failed
    FROM request_events
    WHERE engine = {engine} AND ts <= {end}
      AND kind IN (event_kind('grammar_ready'), event_kind('grammar_failed'),
                   event_kind('admitted'), event_kind('finished'))
    GROUP BY request
)
SELECT b.request, a.request_id, a.grammar_key, b.start_ts, e.end_ts,
       coalesce(e.has_failed, false) AS has_failed,
       (coalesce(e.end_ts, {end}) - b.start_ts)::BIGINT AS wait_ns
FROM began AS b LEFT JOIN ended AS e USING (request)
LEFT JOIN request_arrivals AS a ON a.engine = {engine} AND a.request = b.request
WHERE coalesce(e.end_ts, {end}) >= {start}
ORDER BY wait_ns DESC, b.request
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a grammar kept a request waiting."""
    waits = context.rows(SQL)
    if not waits:
        if not context.quality.has_grammars:
            return unused(ID, "grammars", "not in use")
        return healthy(ID, "grammars", "no request waited for one")
    slow = [row for row in waits if row["wait_ns"] > MIN_WAIT_NS]
    if not slow:
        number = f"longest wait of {len(waits):,}: {duration(waits[0]['wait_ns'])}"
        return healthy(ID, "grammars", number)
    return _finding(context, slow, len(waits))


def _finding(context: Context, slow: list[dict[str, Any]], num_waits: int) -> Finding:
    sql, longest = context.scope.fill(SQL), slow[0]["wait_ns"]
    still = [row for row in slow if row["end_ts"] is None]
    is_open = bool(still) and context.quality.stopped_ts is None
    keys = len({row["grammar_key"] for row in slow})
    failed = sum(row["has_failed"] for row in slow)
    stuck = is_open and still[0]["wait_ns"] >= STUCK_NS
    return finding(
        context,
        RULE,
        severity=Severity.critical if stuck else Severity.high,
        span=Span(
            opened_ts=min(row["start_ts"] for row in slow),
            cleared_ts=None if is_open else max(row["end_ts"] or context.newest_ts for row in slow),
        ),
        sentence=f"{plural(len(slow), 'request')} waited longer than {duration(MIN_WAIT_NS)} for "
        f"{plural(keys, 'grammar')} to be compiled, up to {duration(longest)}"
        + (f"; {len(still):,} still do" if still else ""),
        symptom=f"longest wait for a grammar {duration(longest)}",
        cause=Cause(
            kind="slow_grammars",
            sentence=f"slow grammars: {plural(keys, 'different one')} compiled while their "
            f"requests waited, {failed:,} failed",
        ),
        confidence=("high", "begin and end of each compile are recorded"),
        rejected=ruled_out(
            ("bitmasks in the step", "they make nobody wait in the queue"),
            ("remote KV, adapters", "the reason is recorded for each request"),
        ),
        evidence=(
            measured(
                "longest wait for a grammar", longest, "ns", sql, threshold=MIN_WAIT_NS,
                n=num_waits,
            ),
            measured("requests that waited longer", len(slow), "requests", sql, n=num_waits),
        ),
        impact=Impact(
            cost=(f"{plural(len(slow), 'request')} set aside, up to {duration(longest)}",),
            numbers=(("num_slow", len(slow)), ("longest_ns", longest), ("num_open", len(still))),
        ),
        affected=tuple(
            waited(row["request"], row["request_id"], row["wait_ns"]) for row in slow[:10]
        ),
        num_affected=len(slow),
        actions=(
            advise(
                "send the same schemas again instead of new ones, compile them before traffic "
                "comes, and give such requests a time-out",
                applies="client",
                trade_off="clients have to agree on schemas",
            ),
        ),
    )  # fmt: skip


RULE = Rule(id=ID, version=1, prefix="gws", page=__doc__ or "", decide=decide)
