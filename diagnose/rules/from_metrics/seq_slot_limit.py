"""seq-slot-limit, from scrapes alone: the running gauge stands at the limit, the KV gauge does not.

A gauge above the limit is a sum over several engines, which no rule can judge.
"""

from __future__ import annotations

import numpy as np

from diagnose.advice import VERIFY
from diagnose.alerts.alert import (
    ENGINE,
    FOR_CAPACITY,
    KV_USAGE,
    OUTPUT_TOKENS,
    RUNNING,
    SETTING_MAX_NUM_SEQS,
    Alert,
)
from diagnose.finding import (
    Action,
    Cause,
    Evidence,
    Finding,
    Healthy,
    Impact,
    Rejected,
    RuleVerdict,
    Severity,
)
from diagnose.rule import Context, Earlier
from diagnose.rules.seq_slot_limit import ID, MAX_KV_USED, MIN_STEP_SHARE, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_capacity import MetricCapacity, measure_metric_capacity, record_steps
from diagnose.scrapes.metric_facts import MIN_SCRAPES, Mask, MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, number, too_few
from diagnose.scrapes.metric_finding import span_of_window as whole
from diagnose.words import count, percent

NEARLY = 0.98
"""Part of the slots from which they count as taken. Source: playbook."""
SEVERAL_ENGINES = 1.02
"""More running than this part of the slots, and the gauge is of several engines. Starting value."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where slots, and not KV blocks, keep requests waiting."""
    facts, slots = facts_of(context), context.settings.slots
    if (few := too_few(context, ID)) is not None:
        return few
    missing = facts.missing("num_running", "num_waiting", "kv_cache_usage_ratio")
    missing += facts.missing("num_generation_tokens")
    if slots is None:
        missing += ("engines.max_num_seqs",)
    if missing or slots is None:
        return not_measured(ID, missing)
    most = facts["num_running"].max or 0
    if most > SEVERAL_ENGINES * slots:
        why = f"{most:,.0f} run on {slots:,} slots: the gauge is a sum over several engines"
        return not_measured(ID, ("samples.engine",), why)
    limited = _limited(facts, slots)
    queued = facts["num_waiting"].values > 0
    share = float(limited.sum() / max(queued.sum(), 1))
    if limited.sum() < MIN_SCRAPES or share < MIN_STEP_SHARE:
        return Healthy(rule=ID, name="slots", number=f"{most:,.0f} of {count(slots)}")
    return _finding(context, facts, slots, limited, share)


def _limited(facts: MetricFacts, slots: int) -> Mask:
    """Returns the scrapes at which slots were taken, requests waited, KV was free, tokens came."""
    at_limit = facts["num_running"].values >= NEARLY * slots
    waits = facts.waiting_for_capacity.values > 0
    has_blocks = facts["kv_cache_usage_ratio"].values < MAX_KV_USED
    outputs = facts["num_generation_tokens"].values
    moves = (outputs > 0) | ~np.isfinite(outputs)
    found_: Mask = at_limit & waits & has_blocks & moves
    return found_


def _finding(
    context: Context, facts: MetricFacts, slots: int, limited: Mask, share: float
) -> Finding:
    most_waiting = facts["num_waiting"].within(limited).max or 0
    used = facts["kv_cache_usage_ratio"].within(limited).max or 0
    capacity = measure_metric_capacity(facts, context.settings)
    split = facts["num_waiting_capacity"].is_measured
    return found(
        context,
        RULE,
        severity=Severity.medium,
        span=whole(facts),
        sentence=f"All {count(slots)} slots were taken while up to {most_waiting:,.0f} requests "
        f"waited; at most {percent(used)} of the KV pool was in use",
        symptom=f"slots taken in {limited.sum():,} of {facts.num_scrapes:,} {facts.noun}s",
        cause=Cause(
            kind="setting",
            sentence=f"setting: max_num_seqs is {count(slots)}; {percent(used)} of the KV pool "
            "in use while requests waited",
        ),
        confidence=(
            "medium",
            "gauges at each scrape" if split else "gauges; what those who wait lack is not split",
        ),
        rejected=_rejected(facts, used),
        evidence=_evidence(facts, slots, limited, share, used),
        impact=Impact(
            cost=(f"up to {most_waiting:,.0f} requests queued",),
            numbers=(("max_waiting", round(most_waiting)),),
        ),
        actions=_actions(context, capacity),
        missing=("steps.stop_reason",),
    )


def _rejected(facts: MetricFacts, used: float) -> tuple[Rejected, ...]:
    preempted = facts["num_preemptions"].sum
    told = "not measured" if preempted is None else f"{preempted:,} counted"
    return ruled_out(("KV shortage", f"{percent(used)} used at most"), ("preemption", told))


def _evidence(
    facts: MetricFacts, slots: int, limited: Mask, share: float, used: float
) -> tuple[Evidence, ...]:
    at_limit = (
        f"num_running >= {NEARLY} * {slots} AND coalesce(num_waiting_capacity, num_waiting) > 0 "
        f"AND kv_cache_usage_ratio < {MAX_KV_USED} AND coalesce(num_generation_tokens, 1) > 0"
    )
    return (
        number(
            facts, "scrapes with a queue that the slots explain", share, "ratio",
            f"count(*) FILTER ({at_limit}) / count(*)", "num_waiting > 0",
            threshold=MIN_STEP_SHARE, n=int((facts["num_waiting"].values > 0).sum()),
        ),
        number(
            facts, "highest KV gauge in them", used, "ratio", "max(kv_cache_usage_ratio)",
            at_limit, threshold=MAX_KV_USED, n=int(limited.sum()),
        ),
    )  # fmt: skip


def _actions(context: Context, capacity: MetricCapacity) -> tuple[Action, ...]:
    old, holds, peak = context.settings.max_num_seqs, capacity.holds, capacity.peak_in_flight
    if old is None or holds is None or holds <= old:
        return (record_steps(),)
    new = max(min(holds, peak or holds), old + 1)
    return (
        Action(
            what=f"the pool holds about {holds:,} requests of mean length",
            flag="--max-num-seqs",
            old=str(old),
            new=str(new),
            applies="restart",
            trade_off="larger batches take longer: more time between tokens",
            verify=VERIFY,
            revert=f"--max-num-seqs {old}",
        ),
    )


ALERT = Alert(
    rule=ID,
    severity=Severity.medium,
    hold="2m",
    expr=f"""
avg_over_time({RUNNING}[5m]) >= {NEARLY} * {SETTING_MAX_NUM_SEQS}
  and max_over_time({RUNNING}[5m]) <= {SEVERAL_ENGINES} * {SETTING_MAX_NUM_SEQS}
  and (
  {FOR_CAPACITY}
  ) > 0
  and max_over_time({KV_USAGE}[5m]) < {MAX_KV_USED}
  and rate({OUTPUT_TOKENS}[1m]) > 0
""",
    summary="Requests wait because all slots are taken, not for want of KV blocks",
    description='{{ $value | printf "%.0f" }} requests run, as many as max_num_seqs lets in, and '
    f"others wait with KV blocks to spare. {ENGINE}",
    queries=("scraped-load", "why-nobody-admitted", "admission-gaps"),
)
