"""admission-deadlock, from scrapes alone: nobody runs, somebody waits, the token counters stand."""

from __future__ import annotations

import numpy as np

from diagnose.advice import VERIFY
from diagnose.alerts.alert import ENGINE, IS_AWAKE, RUNNING, WAITING, Alert, no_tokens, seconds
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
from diagnose.rule import Context, Earlier
from diagnose.rules.admission_deadlock import ID, MIN_STUCK_NS, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.saying import undetermined as unknown
from diagnose.scrapes.metric_facts import MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, span_of, too_few
from diagnose.words import connector_name, duration, percent, plural

CAUSES = (
    "request-exceeds-kv-capacity",
    "pd-producer-lease-expiry",
    "remote-kv-wait-stuck",
    "deferred-slot-exhaustion",
    "kv-block-leak",
)
"""Rules that may say why nothing is admitted, the most telling first."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where nothing ran for half a minute while requests waited."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_running", "num_waiting"):
        return not_measured(ID, missing)
    if not facts.num_tokens.is_measured:
        return not_measured(ID, facts.missing("num_prompt_tokens", "num_generation_tokens"))
    running, waiting = facts["num_running"].values, facts["num_waiting"].values
    quiet = facts.num_tokens.values == 0
    stuck = facts.longest((running == 0) & (waiting > 0), quiet, min_ns=MIN_STUCK_NS)
    if stuck is None:
        number_ = "tokens flowed whenever somebody waited"
        return Healthy(rule=ID, name="stuck scheduler", number=number_)
    causes = [earlier.get(rule) for rule in CAUSES]
    known = next((cause for cause in causes if isinstance(cause, Finding)), None)
    return _finding(context, facts, stuck, known)


def _finding(
    context: Context, facts: MetricFacts, stuck: Stretch, known: Finding | None
) -> Finding:
    waiting = round(float(np.nanmax(facts.columns["num_waiting"][stuck.scrapes])))
    waited, requests = duration(stuck.duration_ns), plural(waiting, "request")
    why = f": {known.symptom}" if known else _hint(context, facts, stuck)
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(stuck),
        sentence=f"Nothing ran for {waited} while {requests} waited{why}",
        symptom=f"no token in {stuck.num_scrapes:,} {facts.noun}s with {requests} waiting",
        cause=_cause(context, facts, stuck, known),
        confidence=("medium", "standing still is measured; what the head waits for is not"),
        rejected=ruled_out(("worker hang", "nobody runs")),
        evidence=_evidence(facts, stuck, waiting),
        impact=Impact(
            cost=(f"{requests} waited {waited} without a token",),
            numbers=(("stuck_ns", stuck.duration_ns), ("num_waiting", waiting)),
        ),
        actions=(_probe(),),
        missing=() if known else ("steps.stop_reason", "steps.head_blocks_needed"),
    )


def _deferred(facts: MetricFacts, stuck: Stretch) -> int | None:
    inside = facts.columns["num_waiting_deferred"][stuck.scrapes]
    return round(float(np.nanmax(inside))) if np.isfinite(inside).any() else None


def _hint(context: Context, facts: MetricFacts, stuck: Stretch) -> str:
    deferred = _deferred(facts, stuck)
    usage = facts.columns["kv_cache_usage_ratio"][stuck.scrapes]
    gauge = f", KV gauge at {percent(float(usage[-1]))}" if np.isfinite(usage[-1]) else ""
    if deferred is None:
        return gauge
    if deferred == 0:
        return f"; all of them for capacity{gauge}"
    return f"; {deferred:,} set aside ({connector_name(context.settings.kv_connector)}){gauge}"


def _cause(context: Context, facts: MetricFacts, stuck: Stretch, known: Finding | None) -> Cause:
    if known is not None:
        return known.cause
    deferred = _deferred(facts, stuck)
    if deferred and context.settings.kv_connector is not None:
        held = facts.columns["num_kv_loads_completed"][stuck.scrapes]
        told = "whether their loads are done is not scraped"
        if np.isfinite(held).any():
            told = f"{np.nanmax(held):,.0f} loads are done and wait"
        return unknown(
            f"{deferred:,} requests are set aside and "
            f"{connector_name(context.settings.kv_connector)} is configured; {told}"
        )
    return unknown("no scrape says what the head of the queue needs")


def _evidence(facts: MetricFacts, stuck: Stretch, waiting: int) -> tuple[Evidence, ...]:
    inside = facts.between(stuck)
    return (
        number(
            facts, "time without a running request", stuck.duration_ns, "ns",
            "(max(ts) - min(ts))::BIGINT", inside, threshold=MIN_STUCK_NS, n=stuck.num_scrapes,
        ),
        number(
            facts, "requests waiting", waiting, "requests", "max(num_waiting)", inside,
            threshold=0, n=stuck.num_scrapes,
        ),
    )  # fmt: skip


def _probe() -> Action:
    return Action(
        what="probe token progress, not /health; restart the engine, then remove the cause",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="requests in the engine are lost",
        verify=VERIFY,
        revert="none needed",
    )


ALERT = Alert(
    rule=ID,
    severity=Severity.critical,
    hold=seconds(MIN_STUCK_NS),
    expr=f"""
{WAITING} > 0
  and {RUNNING} == 0
  and {no_tokens("1m")}
  unless ignoring (sleep_state) {IS_AWAKE} == 0
""",
    summary="Nothing runs, requests wait, and no token comes out",
    description=f"{{{{ $value }}}} requests wait and none runs; no token was counted for a minute. "
    f"{ENGINE}",
    queries=("scraped-load", "why-nobody-admitted", "unfinished"),
)
