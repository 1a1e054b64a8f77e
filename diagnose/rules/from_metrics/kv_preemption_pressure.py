"""kv-preemption-pressure, from scrapes alone.

The counter rose while the KV gauge stood at its top, and often enough for each request that ended.
The counter has no causes: one that rose with blocks to spare was a reset of the prefix cache, or
priority.
"""

from __future__ import annotations

import numpy as np

from diagnose.alerts.alert import ENGINE, KV_USAGE, PREEMPTIONS, Alert, finished, p99
from diagnose.finding import (
    Cause,
    Evidence,
    Healthy,
    Impact,
    NotMeasured,
    Rejected,
    RuleVerdict,
    Severity,
    Span,
)
from diagnose.rule import Context, Earlier
from diagnose.rules.from_metrics.iteration_lines import read_iteration_lines
from diagnose.rules.from_metrics.recomputation import FULL_KV, finding_of, is_pressure
from diagnose.rules.guard_light_preemption import MAX_TAIL_RATIO
from diagnose.rules.kv_preemption_pressure import FELT_PAUSE_NS, ID, PER_REQUEST, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.saying import undetermined as unknown
from diagnose.scrapes.metric_capacity import MEAN_SQL, MetricCapacity, against_preemption
from diagnose.scrapes.metric_capacity import measure_metric_capacity as measure
from diagnose.scrapes.metric_facts import MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, too_few
from diagnose.scrapes.metric_latency import Tail
from diagnose.words import count, percent

MANY_TIMES = 2
"""Preemptions of one request, 99th percentile of those that ended. Source: playbook."""
CLEARED_NS = 30 * 10**9
"""So long without a preemption and it is over. Starting value, as for the record's episodes."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the counter rose with the pool full, and often."""
    facts = facts_of(context)
    lines = read_iteration_lines(context) if facts.source != "prometheus" else None
    if lines is not None and is_pressure(lines):
        return finding_of(context, lines)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_preemptions", "kv_cache_usage_ratio"):
        return not_measured(ID, missing, _why(facts))
    total = facts["num_preemptions"].sum
    if not total:
        return Healthy(rule=ID, name="preemptions", number=f"0 counted in {_scrapes(facts)}")
    storm = storm_of(facts)
    fullest = _fullest(facts)
    if fullest < FULL_KV:
        number = f"{total:,} counted, KV at most {percent(fullest)}: not for want of blocks"
        return Healthy(rule=ID, name="preemptions", number=number)
    return _judge(context, facts, storm, total, fullest)


def _why(facts: MetricFacts) -> str:
    if facts.source == "vllm-log":
        return "vLLM's console line never counts preemptions: /metrics does"
    return "not among the scraped series"


def _scrapes(facts: MetricFacts) -> str:
    return f"{facts.num_scrapes:,} {facts.noun}s"


def storm_of(facts: MetricFacts) -> Stretch:
    """Returns the scrapes from before the first preemption to that which counted the last."""
    rises = np.flatnonzero(np.nan_to_num(facts.columns["num_preemptions"]) > 0)
    first, last = max(int(rises[0]) - 1, 0), int(rises[-1])
    return Stretch(
        first, last, int(facts.ts[first]), int(facts.ts[last]), last == facts.num_scrapes - 1
    )


def _fullest(facts: MetricFacts) -> float:
    """Returns the highest gauge around the intervals in which preemptions were counted."""
    rose = np.nan_to_num(facts.columns["num_preemptions"]) > 0
    around = rose | np.append(rose[1:], False)
    return facts["kv_cache_usage_ratio"].within(around).max or 0.0


def _judge(
    context: Context, facts: MetricFacts, storm: Stretch, total: int, fullest: float
) -> RuleVerdict:
    finished = facts["num_finished"].sum
    times, tail = context.histograms.most_preemptions, context.histograms.pauses
    per_request = None if finished is None else total / max(finished, 1)
    is_often = per_request is not None and per_request >= PER_REQUEST
    is_repeated = times is not None and times.low >= MANY_TIMES - 1
    is_felt = tail is not None and tail.is_longer(MAX_TAIL_RATIO, FELT_PAUSE_NS)
    if not (is_often or is_repeated or is_felt):
        return _milder(facts, per_request, tail, has_times=times is not None, total=total)
    return _finding(context, facts, storm, total, fullest, per_request, tail)


def _milder(
    facts: MetricFacts,
    per_request: float | None,
    tail: Tail | None,
    *,
    has_times: bool,
    total: int,
) -> RuleVerdict:
    """Returns what is lacking to call few preemptions harmless; or that they are."""
    missing = facts.missing("num_finished")
    prefix = "sglang" if facts.engine_source == "sglang" else "vllm"
    if not has_times:
        missing += (f"{prefix}:request_num_preemptions_bucket",)
    if tail is None:
        missing += (f"{prefix}:inter_token_latency_seconds_bucket",)
    told = f"{total:,} counted with the pool full"
    if per_request is not None:
        told += f", {per_request:.3f} per request, under {PER_REQUEST:g}"
    if missing:
        why = f"{told}; whether answers paused is not measured"
        return NotMeasured(rule=ID, missing=missing, why=why)
    return Healthy(rule=ID, name="preemptions", number=told)


def _finding(
    context: Context,
    facts: MetricFacts,
    storm: Stretch,
    total: int,
    fullest: float,
    per_request: float | None,
    tail: Tail | None,
) -> RuleVerdict:
    capacity = measure(facts, context.settings)
    cause, headline = _cause(context, capacity)
    is_over = int(facts.ts[-1]) - storm.until_ts >= CLEARED_NS or _is_drained(facts, storm)
    finished = facts["num_finished"].sum
    ended = "" if finished is None else f" for {count(finished)} requests that ended"
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=Span(opened_ts=storm.opened_ts, cleared_ts=storm.until_ts if is_over else None),
        sentence=f"{headline} {total:,} preemptions were counted{ended}",
        symptom=f"{total:,} preemptions with the KV gauge at {percent(fullest)}",
        cause=cause,
        confidence=("medium", "the counter has no causes; that the pool was full is measured"),
        rejected=_rejected(facts, fullest),
        evidence=_evidence(facts, total, fullest, per_request, capacity, storm),
        impact=Impact(
            cost=_loads_cost(facts),
            users=() if tail is None else (tail.sentence,),
            numbers=(("num_preemptions", total), ("num_tokens_lost", None)),
        ),
        actions=against_preemption(context.settings, capacity),
        missing=_missing(facts),
    )


def _is_drained(facts: MetricFacts, storm: Stretch) -> bool:
    later = facts["num_waiting"].values[storm.last :]
    return bool((later == 0).any())


def _cause(context: Context, capacity: MetricCapacity) -> tuple[Cause, str]:
    holds, slots, peak = capacity.holds, context.settings.slots, capacity.peak_in_flight
    loads = _loads(facts_of(context))
    cause = unknown(f"which change made it rise is in no scrape{loads}")
    if holds is None or capacity.mean_tokens is None:
        return cause, "The KV pool ran full."
    mean = f"{capacity.mean_tokens:,.0f} tokens"
    headline = f"The KV pool holds about {holds:,} requests of mean length ({mean})"
    if peak is not None and peak > holds:
        headline += f"; up to {peak:,} were in the engine"
    if slots is not None and slots > holds:
        sentence = f"setting: max_num_seqs lets in {slots:,}, the pool holds about {holds:,}"
        return Cause(kind="setting", sentence=sentence), f"{headline}."
    return cause, f"{headline}."


def _loads(facts: MetricFacts) -> str:
    loaded = facts["num_kv_loads_completed"].max
    return f"; {loaded:,.0f} that waited held blocks with finished KV loads" if loaded else ""


def _loads_cost(facts: MetricFacts) -> tuple[str, ...]:
    """Returns how many waited for their KV loads, and how many of them held blocks meanwhile."""
    deferred = facts["num_waiting_deferred"].max
    return (f"up to {deferred:,.0f} requests were set aside{_loads(facts)}",) if deferred else ()


def _missing(facts: MetricFacts) -> tuple[str, ...]:
    missing: tuple[str, ...] = ("request_events.cause", "request_events.num_computed_tokens_lost")
    if facts["num_waiting_deferred"].max:
        return (*missing, *facts.missing("num_kv_loads_completed"), "connector_loads.outcome")
    return missing


def _rejected(facts: MetricFacts, fullest: float) -> tuple[Rejected, ...]:
    rejected = [("cache reset, priority", f"KV gauge at {percent(fullest)}")]
    if facts["num_waiting_deferred"].max == 0:
        rejected.append(("stuck loads", "0 set aside"))
    return ruled_out(*rejected)


def _evidence(
    facts: MetricFacts,
    total: int,
    fullest: float,
    per_request: float | None,
    capacity: MetricCapacity,
    storm: Stretch,
) -> tuple[Evidence, ...]:
    evidence = [
        number(facts, "preemptions counted", total, "preemptions", "sum(num_preemptions)::BIGINT"),
        number(
            facts,
            "highest KV gauge while they were counted",
            fullest,
            "ratio",
            "max(kv_cache_usage_ratio)",
            facts.around("num_preemptions > 0"),
            threshold=FULL_KV,
            n=storm.num_scrapes,
        ),
        number(
            facts,
            "preemptions per request that ended",
            per_request,
            "",
            "sum(num_preemptions) / greatest(sum(num_finished), 1)",
            threshold=PER_REQUEST,
            n=facts["num_finished"].sum,
        ),
    ]
    if capacity.mean_tokens is not None:
        evidence.append(
            number(
                facts,
                "mean length of a request",
                round(capacity.mean_tokens),
                "tokens",
                f"round({MEAN_SQL})::BIGINT",
                n=capacity.num_finished,
                provenance="derived",
            )
        )
    return tuple(evidence)


ALERT = Alert(
    rule=ID,
    severity=Severity.high,
    hold="1m",
    expr=f"""
increase({PREEMPTIONS}[5m]) > 0
  and max_over_time({KV_USAGE}[5m]) >= {FULL_KV}
  and (
    increase({PREEMPTIONS}[5m]) >= {PER_REQUEST} * clamp_min({finished("5m")}, 1)
    or {p99("vllm:request_num_preemptions", "5m")} > {MANY_TIMES - 1}
  )
""",
    summary="The KV pool is too small for the requests that are let in",
    description='{{ $value | printf "%.0f" }} preemptions in 5 minutes with the KV pool full. '
    f"{ENGINE}",
    queries=("scraped-load", "preemptions-by-minute", "most-evicted", "lost-tokens"),
)
