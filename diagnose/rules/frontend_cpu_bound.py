"""frontend-cpu-bound: first tokens are late before the engine has seen the request.

What it measures
----------------
Time from the server's receiving a request to its arrival in the scheduler's queue, against the time
to its first token: more than half, at the median of 20 requests or more.

Why it matters
--------------
Tokenizing, chat templates and images run in the API server, often on one core. No setting of the
scheduler helps, and the engine has room.

When it stays quiet
-------------------
With a queue in the engine the time is its own: look there. Where the source does not say when a
server received a request, it is not measured.

What to do
----------
More API servers, token ids instead of text, a faster image processor.

Source
------
Report of long prompts tokenized by a pool of one worker: 9 s to the first token with 1 s of
prefill. One half: the playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, ruled_out
from diagnose.words import duration, percent, plural

ID = "frontend-cpu-bound"

MIN_SHARE = 0.5
"""Time before the queue against the time to the first token. Source: playbook."""
MIN_REQUESTS = 20
"""Requests that got a first token. Starting value."""

SQL = """
WITH firsts AS (
    SELECT request, min(ts) AS first_ts FROM request_events
    WHERE engine = {engine} AND ts BETWEEN {start} AND {end} AND kind = event_kind('first_token')
    GROUP BY request
), times AS (
    SELECT a.ts - a.received_ts AS before_ns, f.first_ts - a.received_ts AS ttft_ns,
           a.tokenized_ts - a.received_ts AS tokenize_ns, a.ts
    FROM firsts AS f JOIN request_arrivals AS a ON a.engine = {engine} AND a.request = f.request
    WHERE a.received_ts IS NOT NULL
)
SELECT count(*) AS num_requests, median(before_ns / ttft_ns) AS share,
       median(before_ns)::BIGINT AS before_ns, median(ttft_ns)::BIGINT AS ttft_ns,
       median(tokenize_ns)::BIGINT AS tokenize_ns, min(ts) AS first_ts, max(ts) AS last_ts
FROM times WHERE ttft_ns > 0
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where first tokens are late before the engine."""
    if not context.quality.has_received_times and context.steps.num_rows:
        return not_measured(ID, ("request_arrivals.received_ts",), "not recorded")
    seen = context.row(SQL)
    if seen["num_requests"] < MIN_REQUESTS:
        why = f"{plural(seen['num_requests'], 'first token')}, {MIN_REQUESTS} are needed"
        return not_measured(ID, ("request_arrivals.received_ts",), why)
    if seen["share"] <= MIN_SHARE:
        return healthy(ID, "before the engine", f"{percent(seen['share'])} of time to first token")
    return _finding(context, seen)


def _finding(context: Context, seen: dict[str, Any]) -> Finding:
    sql = context.scope.fill(SQL)
    tokenizing = ""
    if seen["tokenize_ns"] is not None:
        tokenizing = f"; until it was tokenized {duration(seen['tokenize_ns'])}"
    return finding(
        context,
        RULE,
        severity=Severity.medium,
        span=Span(
            opened_ts=seen["first_ts"],
            cleared_ts=None if context.quality.stopped_ts is None else seen["last_ts"],
        ),
        sentence=f"{percent(seen['share'])} of the time to the first token passed before the "
        f"request was in the engine's queue: {duration(seen['before_ns'])} of "
        f"{duration(seen['ttft_ns'])} at the median{tokenizing}",
        symptom=f"{duration(seen['before_ns'])} from server to queue at the median",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: tokenizing, templates or images in the API server",
        ),
        confidence=("high", "both moments of each request are recorded"),
        rejected=ruled_out(
            ("the queue", f"{percent(1 - seen['share'])} of the time was in the engine")
        ),
        evidence=(
            measured(
                "time before the queue against time to first token, median", seen["share"],
                "ratio", sql, threshold=MIN_SHARE, n=seen["num_requests"],
            ),
        ),
        impact=Impact(
            cost=(f"first tokens {duration(seen['before_ns'])} later at the median",),
            numbers=(("before_ns", seen["before_ns"]), ("ttft_ns", seen["ttft_ns"])),
        ),
        num_affected=seen["num_requests"],
        actions=(
            advise(
                "more API servers, or token ids instead of text",
                trade_off="more processes, or clients that tokenize",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=2,
    prefix="fcb",
    page=__doc__ or "",
    decide=decide,
)
