"""frontend-cpu-bound, from scrapes alone.

Mean time to the first token without mean time queued and mean prefill, from the sums of vLLM's
histograms: more than half of it is outside the engine, while nobody waits in it. Not where the
histograms are of different requests.
"""

from __future__ import annotations

from typing import Any

from diagnose.alerts.alert import ENGINE, WAITING, Alert, finished, mean
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
from diagnose.reading import NS
from diagnose.rule import Context, Earlier
from diagnose.rules.frontend_cpu_bound import ID, MIN_SHARE, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, too_few
from diagnose.scrapes.metric_finding import span_of_window as whole
from diagnose.words import duration, percent
from telemetry.sources.prometheus.names import HISTOGRAMS

MIN_REQUESTS = 5
"""Requests that must have ended. Starting value."""
MAX_COUNT_RATIO = 1.25
"""Observations of one of the histograms against another's. A first token is counted when it comes,
queue and prefill when a request ends: means of other requests cannot be compared. Source: tuned on
seeds 0-5 of benchmarks/faults.py, where five first tokens stood against fourteen ends."""
MIN_OUTSIDE_SECONDS = 0.25
"""A shorter time outside is not worth a word. Starting value."""
MAX_WAITING = 1.0
"""Mean of waiting requests up to which the queue is not it. Starting value."""

NAMES = ("ttft", "queue_time", "prefill_time")
"""Histograms whose sums are compared, as `metric_buckets` calls them."""
_SPELLINGS = ", ".join(
    f"('{name}_{part}', '{histogram}', {str(part == 'sum').lower()})"
    for histogram in NAMES
    for name in HISTOGRAMS[histogram]
    for part in ("sum", "count")
)

MEANS_SQL = f"""
WITH names AS (SELECT * FROM (VALUES {_SPELLINGS}) n(metric, name, is_sum)),
ends AS (
    SELECT metric, labels, max(value) - min(value) AS rise FROM samples
    WHERE {{where}} AND metric IN (SELECT metric FROM names) GROUP BY metric, labels
), risen AS (
    SELECT name, is_sum, max(rise) AS rise FROM ends JOIN names USING (metric)
    GROUP BY name, is_sum
)
SELECT name, max(rise) FILTER (is_sum) / nullif(max(rise) FILTER (NOT is_sum), 0) AS mean_seconds,
       max(rise) FILTER (NOT is_sum)::BIGINT AS n
FROM risen GROUP BY name
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where most of the wait for a first token is outside the engine."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_waiting"):
        return not_measured(ID, missing)
    rows = {row["name"]: row for row in context.rows(MEANS_SQL)}
    if missing := tuple(f"{HISTOGRAMS[name][0]}_sum" for name in NAMES if name not in rows):
        return not_measured(ID, missing)
    n = min(rows[name]["n"] or 0 for name in NAMES)
    if n < MIN_REQUESTS or facts.num_resets:
        why = "the engine was restarted" if facts.num_resets else f"{n} requests ended"
        return not_measured(ID, ("request_arrivals.received_ts",), why)
    most = max(rows[name]["n"] for name in NAMES)
    if most > MAX_COUNT_RATIO * n:
        first = rows[NAMES[0]]["n"]
        why = f"{first} first tokens and {rows[NAMES[1]]['n']} ends are not of the same requests"
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


_TTFT = mean("vllm:time_to_first_token_seconds", "10m")
_OUTSIDE = "stepscope:ttft_outside_engine_seconds"

RECORDS = {
    _OUTSIDE: f"""
{_TTFT}
  - {mean("vllm:request_queue_time_seconds", "10m")}
  - {mean("vllm:request_prefill_time_seconds", "10m")}
"""
}
"""Mean time to the first token that was neither queued nor prefill."""

ALERT = Alert(
    rule=ID,
    severity=Severity.medium,
    hold="5m",
    expr=f"""
{_OUTSIDE} >= {MIN_OUTSIDE_SECONDS}
  and {_OUTSIDE} > {MIN_SHARE} * {_TTFT}
  and avg_over_time({WAITING}[10m]) <= {MAX_WAITING}
  and {finished("10m")} >= {MIN_REQUESTS}
""",
    summary="Most of the time to the first token passes outside the engine",
    description="{{ $value | humanizeDuration }} of the time to the first token were neither "
    f"queued nor prefill. {ENGINE}",
    queries=("scraped-latencies", "slowest-first-tokens"),
)
