"""kv-preemption-thrash, from scrapes alone.

Requests are evicted again and again though hardly anybody arrives, prompt tokens are computed and
few tokens come out. A vLLM that counts a prompt once (0.32 does) shows no prompt tokens of a
recomputation: there it looks like `kv-preemption-pressure`.
"""

from __future__ import annotations

import numpy as np

from diagnose.alerts.alert import (
    ENGINE,
    KV_USAGE,
    OUTPUT_TOKENS,
    PREEMPTIONS,
    PROMPT_TOKENS,
    RUNNING,
    WAITING,
    Alert,
    finished,
    seconds,
)
from diagnose.finding import Cause, Evidence, Finding, Healthy, Impact, RuleVerdict, Severity, Span
from diagnose.reading import NS
from diagnose.rule import Context, Earlier
from diagnose.rules.from_metrics.kv_preemption_pressure import storm_of
from diagnose.rules.from_metrics.recomputation import FULL_KV
from diagnose.rules.kv_preemption_thrash import ID, MIN_TIMES, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.saying import undetermined as unknown
from diagnose.scrapes.metric_capacity import against_preemption, measure_metric_capacity
from diagnose.scrapes.metric_facts import Mask, MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, too_few
from diagnose.words import percent

MAX_ARRIVALS = 0.25
"""Arrivals for each preemption up to which newcomers do not explain them. Starting value."""
COLLAPSE = 0.25
"""Output rate in it against the highest of ten minutes. Source: playbook."""
LOOK_BACK_NS = 10 * 60 * NS
"""How long the highest output rate is looked for. Source: playbook."""
PROMPT_SHARE = 10
"""Prompt tokens for each output token that say so too where no better time was seen. Starting
value: the playbook has only the comparison with the maximum."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where evictions repeat, nobody arrives and little comes out."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    needed = ("num_preemptions", "kv_cache_usage_ratio", "num_running", "num_waiting")
    if missing := facts.missing(*needed, "num_prompt_tokens", "num_generation_tokens"):
        return not_measured(ID, missing, "not among the series of this source")
    total = facts["num_preemptions"].sum or 0
    if total < MIN_TIMES:
        return Healthy(rule=ID, name="thrash", number=f"{total:,} preemptions counted")
    storm = storm_of(facts)
    arrivals, prompts, outputs = _arrivals(facts, storm), *_tokens(facts, storm)
    is_full = (facts["kv_cache_usage_ratio"].within(_mask(facts, storm)).max or 0) >= FULL_KV
    ratio = _output_ratio(facts, storm)
    looks_like_it = is_full and arrivals <= MAX_ARRIVALS * total and prompts >= outputs
    if not (looks_like_it and (ratio < COLLAPSE or prompts >= PROMPT_SHARE * max(outputs, 1))):
        number_ = f"{arrivals:,} arrivals for {total:,} preemptions, output at {percent(ratio)}"
        return Healthy(rule=ID, name="thrash", number=number_)
    return _finding(context, facts, storm, total, arrivals, ratio, earlier)


def _mask(facts: MetricFacts, storm: Stretch) -> Mask:
    within: Mask = (facts.ts >= storm.opened_ts) & (facts.ts <= storm.until_ts)
    return within


def _arrivals(facts: MetricFacts, storm: Stretch) -> int:
    """Returns how many came: those who ended and by how many the engine filled."""
    inside = facts.in_flight.values[storm.scrapes]
    finished = float(np.nansum(facts.columns["num_finished"][storm.intervals]))
    return max(round(float(inside[-1] - inside[0]) + finished), 0)


def _tokens(facts: MetricFacts, storm: Stretch) -> tuple[int, int]:
    prompts = np.nansum(facts.columns["num_prompt_tokens"][storm.intervals])
    outputs = np.nansum(facts.columns["num_generation_tokens"][storm.intervals])
    return round(float(prompts)), round(float(outputs))


def _output_ratio(facts: MetricFacts, storm: Stretch) -> float:
    """Returns the median output rate in it against the highest of ten minutes before its end."""
    rates = facts.per_second("num_generation_tokens")
    around = (facts.ts >= storm.until_ts - LOOK_BACK_NS) & (facts.ts <= storm.until_ts)
    highest = np.nanmax(rates[around])
    return float(np.nanmedian(rates[storm.intervals]) / highest) if highest > 0 else 0.0


def _finding(
    context: Context,
    facts: MetricFacts,
    storm: Stretch,
    total: int,
    arrivals: int,
    ratio: float,
    earlier: Earlier,
) -> Finding:
    capacity = measure_metric_capacity(facts, context.settings)
    cause = _cause(context, earlier)
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=Span(
            opened_ts=storm.opened_ts,
            cleared_ts=None if storm.last >= facts.num_scrapes - 2 else storm.until_ts,
        ),
        sentence=f"{total:,} preemptions while {arrivals:,} requests arrived: prompts are computed "
        f"again and output fell to {percent(ratio)} of its best",
        symptom=f"{total:,} preemptions, hardly any arrival, little output",
        cause=cause,
        confidence=(
            "medium",
            "that it is the same requests is inferred: no request is in a scrape",
        ),
        rejected=ruled_out(("more arrivals", f"{arrivals:,} for {total:,} preemptions")),
        evidence=_evidence(facts, storm, total, ratio),
        impact=Impact(
            numbers=(("num_preemptions", total), ("num_tokens_lost", None)),
        ),
        actions=against_preemption(context.settings, capacity),
        missing=("progress of each request: request_events.num_computed_tokens_lost",),
    )


def _cause(context: Context, earlier: Earlier) -> Cause:
    oversize = earlier.get("request-exceeds-kv-capacity")
    if isinstance(oversize, Finding):
        return oversize.cause
    if context.settings.reserve_full_prompt is False:
        sentence = "setting: scheduler_reserve_full_isl is off, one chunk's blocks let a request in"
        return Cause(kind="setting", sentence=sentence)
    return unknown("no scrape says who was evicted, or why it was let in again")


def _evidence(facts: MetricFacts, storm: Stretch, total: int, ratio: float) -> tuple[Evidence, ...]:
    prompts, outputs = _tokens(facts, storm)
    inside = f"ts > {storm.opened_ts} AND ts <= {storm.until_ts}"
    rate = "num_generation_tokens / interval_ns"
    start = storm.until_ts - LOOK_BACK_NS
    return (
        number(
            facts, "preemptions counted", total, "preemptions", "sum(num_preemptions)::BIGINT",
            threshold=MIN_TIMES,
        ),
        number(
            facts, "output rate against the highest of ten minutes", ratio, "ratio",
            f"median({rate}) FILTER ({inside}) / max({rate})",
            f"ts BETWEEN {start} AND {storm.until_ts}", threshold=COLLAPSE,
        ),
        number(
            facts, "prompt tokens computed in it", prompts, "tokens",
            "sum(num_prompt_tokens)::BIGINT", inside, threshold=outputs,
            threshold_text=f"output {outputs:,}",
        ),
    )  # fmt: skip


ALERT = Alert(
    rule=ID,
    severity=Severity.critical,
    hold="1m",
    expr=f"""
increase({PREEMPTIONS}[5m]) >= {MIN_TIMES}
  and max_over_time({KV_USAGE}[5m]) >= {FULL_KV}
  and delta({RUNNING}[5m]) + delta({WAITING}[5m]) + {finished("5m")}
    <= {MAX_ARRIVALS} * increase({PREEMPTIONS}[5m])
  and increase({PROMPT_TOKENS}[5m]) >= increase({OUTPUT_TOKENS}[5m])
  and (
    rate({OUTPUT_TOKENS}[5m])
      < {COLLAPSE} * max_over_time(rate({OUTPUT_TOKENS}[1m])[{seconds(LOOK_BACK_NS)}:15s])
    or increase({PROMPT_TOKENS}[5m]) >= {PROMPT_SHARE} * clamp_min(increase({OUTPUT_TOKENS}[5m]), 1)
  )
""",
    summary="The same requests are evicted and admitted again and again",
    description='{{ $value | printf "%.0f" }} preemptions in 5 minutes, hardly any arrival, and '
    f"little comes out. {ENGINE}",
    queries=("scraped-load", "most-evicted", "lost-tokens"),
)
