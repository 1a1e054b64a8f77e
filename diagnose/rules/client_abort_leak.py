"""client-abort-leak: the client has gone, and its request goes on.

What it measures
----------------
Time from the moment a client was seen to hang up until its request ended. The rule fires where one
went on for more than ten seconds.

Why it matters
--------------
Nobody reads what is generated. Such requests hold slots and KV blocks until `max_tokens`, and after
a wave of time-outs most of an engine may work for nobody.

When it stays quiet
-------------------
An abort that works ends its request within a step or two. Where the source does not see clients
leave, it is not measured: an abort that is only missing from a log is no leak.

What to do
----------
Take a version whose aborts reach the engine, cap `max_tokens`, restart to free what is left.

Source
------
Report of requests that decoded to their end after their clients had disconnected. Ten seconds:
starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, ruled_out, waited
from diagnose.words import duration, plural

ID = "client-abort-leak"

MAX_LAG_NS = 10 * NS
"""How long a request may go on without its client. Starting value."""

SQL = """
WITH gone AS (
    SELECT request, min(ts) AS gone_ts FROM request_events
    WHERE engine = {engine} AND ts <= {end} AND kind = event_kind('client_gone')
    GROUP BY request
)
SELECT g.request, r.request_id, g.gone_ts, r.finished_ts,
       (least(coalesce(r.finished_ts, {end}), {end}) - g.gone_ts)::BIGINT AS lag_ns
FROM gone AS g JOIN requests AS r ON r.engine = {engine} AND r.request = g.request
WHERE coalesce(r.finished_ts, {end}) >= {start}
ORDER BY lag_ns DESC, g.request
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where requests outlived their clients."""
    if context.settings.source not in (None, "stepscope"):
        why = "this source does not see clients leave"
        return not_measured(ID, ("request_events.kind",), why)
    gone = context.rows(SQL)
    late = [row for row in gone if row["lag_ns"] > MAX_LAG_NS]
    if not late:
        longest = f", longest {duration(gone[0]['lag_ns'])} to the end" if gone else ""
        return healthy(ID, "aborts", f"{plural(len(gone), 'client')} left{longest}")
    return _finding(context, late, len(gone))


def _finding(context: Context, late: list[dict[str, Any]], num_gone: int) -> Finding:
    sql, longest = context.scope.fill(SQL), late[0]["lag_ns"]
    still = sum(row["finished_ts"] is None for row in late)
    is_open = bool(still) and context.quality.stopped_ts is None
    ends = [row["finished_ts"] for row in late if row["finished_ts"] is not None]
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=Span(
            opened_ts=min(row["gone_ts"] for row in late),
            cleared_ts=None if is_open else max(ends, default=context.newest_ts),
        ),
        sentence=f"{plural(len(late), 'request')} went on without a client, up to "
        f"{duration(longest)}" + (f"; {still:,} still do" if still else ""),
        symptom=f"up to {duration(longest)} from hang-up to the end of the request",
        cause=Cause(kind="code", sentence="code: the abort did not reach the engine"),
        confidence=("high", "hang-up and end of each request are recorded"),
        rejected=ruled_out(("aborts that work", f"{num_gone - len(late):,} ended in time")),
        evidence=(
            measured(
                "longest time without a client", longest, "ns", sql, threshold=MAX_LAG_NS,
                n=num_gone,
            ),
        ),
        impact=Impact(
            cost=(f"{plural(len(late), 'request')} held slots and blocks for nobody",),
            numbers=(("num_leaked", len(late)), ("longest_ns", longest)),
        ),
        affected=tuple(waited(row["request"], row["request_id"]) for row in late[:10]),
        num_affected=len(late),
        actions=(
            advise(
                "take a version whose aborts reach the engine; cap max_tokens until then",
                trade_off="long answers are cut",
            ),
        ),
    )  # fmt: skip


RULE = Rule(id=ID, version=1, prefix="cal", page=__doc__ or "", decide=decide)
