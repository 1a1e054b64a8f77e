"""no-scheduler-fault, from scrapes alone: nothing was found in what scrapes show.

Where something stands still, or waits all the time, without a rule that explains it, the verdict is
`undetermined`, with the symptom and what is missing.
"""

from __future__ import annotations

from diagnose.finding import (
    NOT_ENOUGH_DATA,
    UNDETERMINED,
    Confidence,
    Finding,
    Healthy,
    RuleVerdict,
    Severity,
    finding_id,
)
from diagnose.rule import Context, Earlier, findings_of
from diagnose.rules.from_metrics.stalls import MetricStall, find_metric_stall
from diagnose.rules.no_scheduler_fault import ID, RULE
from diagnose.saying import not_measured
from diagnose.saying import undetermined as unknown
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of, too_few
from diagnose.words import count, plural

NEARLY_FULL = 0.85
"""KV gauge from which requests may be evicted unseen. Starting value."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict | None:
    """Returns that scrapes show no fault, or `undetermined` where they show an unexplained one."""
    if any(finding.severity > Severity.info for finding in findings_of(earlier)):
        return None
    facts = facts_of(context)
    if (few := too_few(context, NOT_ENOUGH_DATA)) is not None:
        return few
    if missing := facts.missing("num_running", "num_waiting"):
        return not_measured(NOT_ENOUGH_DATA, missing, "neither running nor waiting is measured")
    stall = find_metric_stall(context, facts)
    if stall is not None:
        return _undetermined(context, facts, stall)
    if not facts["num_preemptions"].is_measured and _may_preempt(facts):
        why = f"{_number(facts)}, but preemptions are counted nowhere"
        return not_measured(NOT_ENOUGH_DATA, facts.missing("num_preemptions"), why)
    return Healthy(rule=ID, name="scheduler", number=_number(facts), sentence=_sentence(facts))


def _may_preempt(facts: MetricFacts) -> bool:
    """Whether the pool may have run full unseen: between two lines, or at a scrape."""
    return facts.source == "vllm-log" or (facts["kv_cache_usage_ratio"].max or 1.0) >= NEARLY_FULL


def _number(facts: MetricFacts) -> str:
    waited = int((facts["num_waiting"].values > 0).sum())
    return f"waiting at {waited:,} of {plural(facts.num_scrapes, facts.noun)}"


def _sentence(facts: MetricFacts) -> str:
    told = f" ({facts.told_by})."
    waited = int((facts["num_waiting"].values > 0).sum())
    if not waited:
        return (
            "Nobody waited for the scheduler at any "
            f"{facts.noun}. If answers were slow, look at the model, client or network{told}"
        )
    most = facts["num_waiting"].max or 0
    return (
        f"No fault in what {facts.noun}s show: up to {most:,.0f} requests waited at {waited:,} of "
        f"{count(facts.num_scrapes)}, and the queue moved{told}"
    )


def _undetermined(context: Context, facts: MetricFacts, stall: MetricStall) -> Finding:
    return Finding(
        id=finding_id("und", context.scope.engine),
        rule=UNDETERMINED,
        rule_version=RULE.version,
        severity=stall.severity,
        confidence=Confidence(level="low", why="the symptom is measured, no rule explains it"),
        span=stall.span,
        engine=context.scope.engine,
        sentence=f"{stall.sentence} ({facts.told_by}).",
        symptom=stall.sentence,
        cause=unknown(f"missing {', '.join(stall.missing)}"),
        evidence=stall.evidence,
        missing=stall.missing,
        data_quality=context.data_quality,
    )
