"""kv-block-leak, from scrapes alone.

A trend over scrapes: KV usage never falls and running requests never rise, until usage has risen by
more than 0.3 and less than half as many requests run, without a preemption.
"""

from __future__ import annotations

import numpy as np

from diagnose.alerts.alert import ENGINE, KV_USAGE, PREEMPTIONS, RUNNING, Alert
from diagnose.finding import Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.rule import Context, Earlier
from diagnose.rules.kv_block_leak import ID, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_capacity import record_steps
from diagnose.scrapes.metric_facts import Floats, MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, span_of, too_few
from diagnose.words import count, duration, percent

MIN_RISE = 0.3
"""By how much the KV gauge has to rise. Source: playbook."""
MAX_RUNNING_RATIO = 0.5
"""Running requests at the end against the beginning. Source: playbook."""
STEP_BACK = 0.02
"""The gauge may fall by so much between two scrapes. Starting value."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where usage rises as running requests fall."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    missing = facts.missing("kv_cache_usage_ratio", "num_running", "num_preemptions")
    if missing:
        return not_measured(ID, missing)
    leak = _leak(facts)
    if leak is None:
        return Healthy(rule=ID, name="KV held", number="usage and running requests move together")
    return _finding(context, facts, leak)


def _leak(facts: MetricFacts) -> Stretch | None:
    usage, running = facts["kv_cache_usage_ratio"].values, facts["num_running"].values
    preempted = np.nan_to_num(facts["num_preemptions"].values)
    fuller = np.diff(usage, prepend=usage[:1]) >= -STEP_BACK
    fewer = np.diff(running, prepend=running[:1]) <= 0
    for trend in facts.stretches(np.isfinite(usage), fuller & fewer & (preempted == 0)):
        if _is_leak(usage[trend.scrapes], running[trend.scrapes]):
            return trend
    return None


def _is_leak(usage: Floats, running: Floats) -> bool:
    rose = usage[-1] - usage[0] > MIN_RISE
    return bool(rose and running[0] > 0 and running[-1] < MAX_RUNNING_RATIO * running[0])


def _finding(context: Context, facts: MetricFacts, leak: Stretch) -> Finding:
    usage, running = facts["kv_cache_usage_ratio"].values, facts["num_running"].values
    first, last = leak.first, leak.last
    rise = float(usage[last] - usage[first])
    tokens = round(float(np.nansum(facts.num_tokens.values[leak.intervals])))
    inside, lasted = facts.between(leak), duration(leak.duration_ns)
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(leak),
        sentence=f"KV usage rose from {percent(usage[first])} to {percent(usage[last])} in {lasted}"
        f" while running requests fell from {running[first]:,.0f} to {running[last]:,.0f}",
        symptom=f"KV usage up by {percent(rise)}, running {running[first]:,.0f} to "
        f"{running[last]:,.0f}, no preemption",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: who holds the blocks is in no scrape"
            + _deferred(facts, leak),
        ),
        confidence=("medium", f"a trend of {leak.num_scrapes:,} {facts.noun}s"),
        rejected=ruled_out(("preemption", "0 counted in it")),
        evidence=(
            number(
                facts, "rise of the KV gauge", rise, "ratio",
                "arg_max(kv_cache_usage_ratio, ts) - arg_min(kv_cache_usage_ratio, ts)", inside,
                threshold=MIN_RISE, n=leak.num_scrapes,
            ),
            number(
                facts, "running requests, end against beginning",
                float(running[last] / running[first]), "ratio",
                "arg_max(num_running, ts) / arg_min(num_running, ts)", inside,
                threshold=MAX_RUNNING_RATIO, n=leak.num_scrapes,
            ),
        ),
        impact=Impact(
            cost=(f"{percent(rise)} of the KV pool is held; {count(tokens)} tokens meanwhile",),
            numbers=(("kv_usage_rise_ratio", rise), ("num_tokens", tokens)),
        ),
        actions=(record_steps(),),
        missing=("steps.num_blocks_running", "steps.num_blocks_waiting"),
    )  # fmt: skip


def _deferred(facts: MetricFacts, leak: Stretch) -> str:
    deferred = facts.columns["num_waiting_deferred"][leak.last]
    return f"; {deferred:,.0f} requests are set aside" if np.nan_to_num(deferred) > 0 else ""


ALERT = Alert(
    rule=ID,
    severity=Severity.critical,
    hold="1m",
    expr=f"""
{KV_USAGE} - {KV_USAGE} offset 10m > {MIN_RISE}
  and {RUNNING} < {MAX_RUNNING_RATIO} * ({RUNNING} offset 10m > 0)
  and resets(max_over_time({KV_USAGE}[1m])[10m:15s]) == 0
  and resets((0 - {RUNNING})[10m:15s]) == 0
  and increase({PREEMPTIONS}[10m]) == 0
""",
    summary="KV blocks are held by nobody that runs",
    description="KV usage rose by {{ $value | humanizePercentage }} of the pool in 10 minutes "
    f"while running requests fell by more than half. {ENGINE}",
    queries=("scraped-load", "kv-holders", "kv-blocks-by-minute"),
)
