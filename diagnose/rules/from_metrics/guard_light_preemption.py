"""guard-light-preemption, from scrapes alone: needs the histograms of evictions and of pauses."""

from __future__ import annotations

from diagnose.alerts.alert import PREEMPTIONS, Alert, finished, p99
from diagnose.finding import Finding, Severity
from diagnose.reading import NS
from diagnose.rule import Context, Earlier
from diagnose.rules.guard_light_preemption import (
    MAX_AFFECTED_RATIO,
    MAX_TAIL_RATIO,
    MAX_TIMES,
    RULE,
)
from diagnose.rules.kv_preemption_pressure import FELT_PAUSE_NS
from diagnose.saying import undetermined
from diagnose.scrapes.metric_finding import facts_of, found, number, span_of_window
from diagnose.words import count


def decide(context: Context, earlier: Earlier) -> Finding | None:
    """Returns an informational finding where few were evicted and nobody felt it; else `None`."""
    facts = facts_of(context)
    total, finished = facts["num_preemptions"].sum, facts["num_finished"].sum
    if not facts.has_enough or not total or not finished:
        return None
    times, tail = context.histograms.most_preemptions, context.histograms.pauses
    if times is None or tail is None or times.high > MAX_TIMES:
        return None
    if total >= MAX_AFFECTED_RATIO * finished or tail.is_longer(MAX_TAIL_RATIO, FELT_PAUSE_NS):
        return None
    return found(
        context,
        RULE,
        severity=Severity.info,
        span=span_of_window(facts),
        sentence=f"{total:,} preemptions for {count(finished)} requests, and pauses stayed short",
        symptom=f"{total:,} preemptions counted",
        cause=undetermined("too few preemptions to name a change"),
        confidence=("medium", "percentiles of buckets; who was evicted is not recorded"),
        evidence=(
            number(
                facts,
                "preemptions per request that ended",
                total / finished,
                "ratio",
                "sum(num_preemptions) / sum(num_finished)",
                threshold=MAX_AFFECTED_RATIO,
                n=finished,
            ),
        ),
    )


_PAUSES = "vllm:inter_token_latency_seconds"

ALERT = Alert(
    rule=RULE.id,
    expr=f"""
increase({PREEMPTIONS}[5m]) > 0
  and increase({PREEMPTIONS}[5m]) < {MAX_AFFECTED_RATIO} * {finished("5m")}
  and {p99("vllm:request_num_preemptions", "5m")} <= {MAX_TIMES}
  and (
    {p99(_PAUSES, "5m")} < {FELT_PAUSE_NS / NS}
    or {p99(_PAUSES, "5m")} <= {MAX_TAIL_RATIO} * {p99(_PAUSES, "1h", " offset 5m")}
  )
""",
    queries=("scraped-load", "preemptions-by-minute"),
)
"""A guard: recorded, and never an alert."""
