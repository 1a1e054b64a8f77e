"""frontend-cpu-bound: first tokens are late before the engine has seen the request.

What it measures
----------------
Mean time to the first token without mean time queued and mean prefill, from the sums of vLLM's
histograms: more than half of it is outside the engine, while nobody waits in it.

Why it matters
--------------
Tokenizing, chat templates and images run in the API server, often on one core. No setting of the
scheduler helps, and the engine has room.

When it stays quiet
-------------------
With a queue in the engine the time is its own: look there. Histograms fill when a request ends, so
one that is stuck is in none.

What to do
----------
More API servers (`--api-server-count`), token ids instead of text, a faster image processor.

Source
------
Report of long prompts tokenized by a pool of one worker: 9 s to the first token with 1 s of
prefill. One half: the playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.finding import (
    Action,
    Cause,
    Evidence,
    Finding,
    Healthy,
    Impact,
    RuleVerdict,
    Severity,
)
from diagnose.metric_facts import MetricFacts
from diagnose.metric_finding import facts_of, found, not_measured, ruled_out, too_few
from diagnose.metric_finding import span_of_window as whole
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.words import duration, percent

ID = "frontend-cpu-bound"

MIN_SHARE = 0.5
"""Share of the time to the first token that is outside the engine. Source: playbook."""
MIN_REQUESTS = 5
"""Requests that must have ended. Starting value."""
MIN_OUTSIDE_SECONDS = 0.25
"""A shorter time outside is not worth a word. Starting value."""
MAX_WAITING = 1.0
"""Mean of waiting requests up to which the queue is not it. Starting value."""

NAMES = (
    "time_to_first_token_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
)

MEANS_SQL = """
WITH wanted AS (
    SELECT ts, regexp_extract(metric, '^(?:vllm:|ray_vllm_|ray_vllm:|vllm_)(.+)_(sum|count)$', 1)
               AS name, metric LIKE '%_sum' AS is_sum, sum(value) AS value
    FROM samples WHERE {where} AND (metric LIKE '%_seconds_sum' OR metric LIKE '%_seconds_count')
    GROUP BY ALL
), risen AS (
    SELECT name, is_sum, arg_max(value, ts) - arg_min(value, ts) AS rise
    FROM wanted WHERE name IN ('time_to_first_token_seconds', 'request_queue_time_seconds',
                               'request_prefill_time_seconds')
    GROUP BY ALL
)
SELECT name, max(rise) FILTER (is_sum) / nullif(max(rise) FILTER (NOT is_sum), 0) AS mean_seconds,
       max(rise) FILTER (NOT is_sum)::BIGINT AS n
FROM risen GROUP BY name
"""


def decide_metrics(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where most of the wait for a first token is outside the engine."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_waiting"):
        return not_measured(ID, missing)
    rows = {row["name"]: row for row in context.rows(MEANS_SQL)}
    if missing := tuple(f"vllm:{name}_sum" for name in NAMES if name not in rows):
        return not_measured(ID, missing)
    n = min(rows[name]["n"] or 0 for name in NAMES)
    if n < MIN_REQUESTS or facts.num_resets:
        why = "the engine was restarted" if facts.num_resets else f"{n} requests ended"
        return not_measured(ID, ("request_arrivals.received_ts",), why)
    ttft, queued, prefill = (rows[name]["mean_seconds"] for name in NAMES)
    outside = ttft - queued - prefill
    waiting = float(facts["num_waiting"].values[facts["num_waiting"].values >= 0].mean())
    is_outside = outside > MIN_SHARE * ttft and outside >= MIN_OUTSIDE_SECONDS
    if not is_outside or waiting > MAX_WAITING:
        number = f"{percent(max(outside, 0) / ttft)} of the time to the first token"
        return Healthy(rule=ID, name="outside the engine", number=number)
    return _finding(context, facts, rows, outside)


def _finding(
    context: Context, facts: MetricFacts, rows: dict[str, dict[str, Any]], outside: float
) -> Finding:
    ttft, queued, prefill = (rows[name]["mean_seconds"] for name in NAMES)
    sql = context.scope.fill(MEANS_SQL)
    return found(
        context,
        RULE,
        severity=Severity.medium,
        span=whole(facts),
        sentence=f"First tokens took {duration(ttft * NS)} on average, of which "
        f"{duration(outside * NS)} passed before the engine saw the request",
        symptom=f"{percent(outside / ttft)} of the time to the first token is outside the engine",
        cause=Cause(
            kind="undetermined", sentence="undetermined: tokenizer, template, images or network"
        ),
        confidence=("medium", "a difference of means; the API server's own time is not scraped"),
        rejected=ruled_out(
            ("queue", f"{duration(queued * NS)} queued"),
            ("prefill", f"{duration(prefill * NS)} of prefill"),
        ),
        evidence=(
            Evidence(
                name="time to the first token outside the engine",
                value=outside / ttft,
                unit="ratio",
                threshold=MIN_SHARE,
                n=rows[NAMES[0]]["n"],
                provenance="derived",
                sql=sql,
            ),
        ),
        impact=Impact(
            users=(f"first tokens come {duration(outside * NS)} later",),
            numbers=(("outside_seconds", outside), ("ttft_seconds", ttft)),
        ),
        actions=(_more_servers(),),
        missing=("request_arrivals.received_ts",),
    )


def _more_servers() -> Action:
    return Action(
        what="run more API servers (--api-server-count), or send token ids",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="each takes a core and memory",
        verify="stepscope diagnose --since 10m",
        revert="as many as before",
    )


RULE = Rule(id=ID, version=1, prefix="fcb", page=__doc__ or "", decide_metrics=decide_metrics)
