"""deferred-slot-exhaustion, from scrapes alone.

Scrapes at which running and deferred requests together reach `max_num_seqs` while the KV pool is
less than 60 % used and no request ends: two or more in a row.
"""

from __future__ import annotations

import numpy as np

from diagnose.alerts.alert import (
    DEFERRED,
    ENGINE,
    KV_USAGE,
    RUNNING,
    SETTING_MAX_NUM_SEQS,
    Alert,
    finished,
)
from diagnose.finding import Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.rule import Context, Earlier
from diagnose.rules.deferred_slot_exhaustion import ID, MAX_KV_USED, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_capacity import record_steps
from diagnose.scrapes.metric_facts import MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, span_of, too_few
from diagnose.words import duration, percent, plural

MIN_IN_A_ROW = 2
"""Scrapes in a row at which it has to be so. Starting value."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where deferred requests hold the slots and none ends."""
    facts, slots = facts_of(context), context.settings.slots
    if (few := too_few(context, ID)) is not None:
        return few
    missing = facts.missing("num_running", "num_waiting_deferred", "kv_cache_usage_ratio")
    missing += facts.missing("num_finished")
    if slots is None:
        missing += ("engines.max_num_seqs",)
    if missing or slots is None:
        return not_measured(ID, missing)
    taken = facts["num_running"].values + facts["num_waiting_deferred"].values
    stuck = facts.longest(
        (taken >= slots)
        & (facts["num_waiting_deferred"].values > 0)
        & (facts["kv_cache_usage_ratio"].values < MAX_KV_USED),
        facts["num_finished"].values == 0,
        min_scrapes=MIN_IN_A_ROW,
    )
    if stuck is None:
        number_ = f"at most {np.nanmax(taken):,.0f} of {slots:,} slots run or set aside"
        return Healthy(rule=ID, name="deferred", number=number_)
    return _finding(context, facts, stuck, slots)


def _finding(context: Context, facts: MetricFacts, stuck: Stretch, slots: int) -> Finding:
    deferred = round(float(np.nanmax(facts.columns["num_waiting_deferred"][stuck.scrapes])))
    running = round(float(np.nanmax(facts.columns["num_running"][stuck.scrapes])))
    used = float(np.nanmax(facts.columns["kv_cache_usage_ratio"][stuck.scrapes]))
    lasted, inside = duration(stuck.duration_ns), facts.between(stuck)
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(stuck),
        sentence=f"Up to {deferred:,} requests set aside and {running:,} running ones fill "
        f"the {slots:,} slots; none ended in {lasted}, the KV pool was {percent(used)} used",
        symptom=f"{running + deferred:,} of {slots:,} slots taken, no request ended in {lasted}",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: deferred merges adapters, remote KV, grammars and encoders",
        ),
        confidence=("high", "gauges against max_num_seqs, and no request ended"),
        rejected=ruled_out(("slot limit", "no request ended"), ("KV shortage", percent(used))),
        evidence=(
            number(
                facts, "running and set aside", running + deferred, "requests",
                "max(num_running) + max(num_waiting_deferred)", inside, threshold=slots,
                n=stuck.num_scrapes,
            ),
            number(
                facts, "highest KV gauge in it", used, "ratio", "max(kv_cache_usage_ratio)",
                inside, threshold=MAX_KV_USED, n=stuck.num_scrapes,
            ),
        ),
        impact=Impact(
            cost=(f"{plural(deferred, 'request')} hold slots and get nothing",),
            numbers=(("num_deferred", deferred), ("stuck_ns", stuck.duration_ns)),
        ),
        actions=(record_steps(),),
        missing=("wait_reasons.wait_reason",),
    )  # fmt: skip


ALERT = Alert(
    rule=ID,
    severity=Severity.critical,
    hold="1m",
    expr=f"""
{RUNNING} + {DEFERRED} >= {SETTING_MAX_NUM_SEQS}
  and {DEFERRED} > 0
  and max_over_time({KV_USAGE}[2m]) < {MAX_KV_USED}
  and {finished("2m")} == 0
""",
    summary="Requests that are set aside hold the slots, and none ends",
    description="{{ $value }} requests run or are set aside, as many as max_num_seqs lets in; "
    f"none ended for 2 minutes. {ENGINE}",
    queries=("scraped-load", "waits-by-reason", "why-nobody-admitted"),
)
