"""How a rule that has only scrapes or log lines says what it found.

A finding of scrapes names them in its sentence, carries the SQL over `metric_intervals` of each
number, and names what a step record would add.
"""

from __future__ import annotations

import numpy as np

from diagnose.finding import (
    Action,
    Cause,
    Evidence,
    Finding,
    Impact,
    Level,
    NotMeasured,
    Number,
    Provenance,
    Rejected,
    Severity,
    Span,
)
from diagnose.rule import Context, Rule
from diagnose.saying import finding
from diagnose.scrapes.metric_facts import MIN_SCRAPES, MetricFacts, Stretch
from diagnose.words import plural


def facts_of(context: Context) -> MetricFacts:
    """Returns the scrapes of an engine that has nothing else."""
    if context.metrics is None:
        raise ValueError(f"engine {context.scope.engine} has a step record: judge that")
    return context.metrics


def found(
    context: Context,
    rule: Rule,
    *,
    severity: Severity,
    span: Span,
    sentence: str,
    symptom: str,
    cause: Cause,
    confidence: tuple[Level, str],
    evidence: tuple[Evidence, ...],
    rejected: tuple[Rejected, ...] = (),
    impact: Impact | None = None,
    actions: tuple[Action, ...] = (),
    missing: tuple[str, ...] = (),
    told_by: str | None = None,
) -> Finding:
    """Returns a finding; its sentence ends in what it comes from, scrapes alone if not said."""
    return finding(
        context,
        rule,
        severity=severity,
        span=span,
        sentence=f"{sentence.removesuffix('.')} ({told_by or facts_of(context).told_by})",
        symptom=symptom,
        cause=cause,
        confidence=confidence,
        rejected=rejected,
        evidence=evidence,
        impact=impact,
        actions=actions,
        missing=missing,
    )


def too_few(context: Context, rule_id: str) -> NotMeasured | None:
    """Returns that there are too few scrapes to judge by; `None` where there are enough."""
    facts = facts_of(context)
    if facts.has_enough:
        return None
    if facts.source is None:
        return NotMeasured(rule=rule_id, missing=("steps", "samples"), why="nothing is measured")
    why = f"{plural(facts.num_scrapes, facts.noun)}, {MIN_SCRAPES} are needed"
    return NotMeasured(rule=rule_id, missing=("samples",), why=why)


def span_of(stretch: Stretch) -> Span:
    """Returns when a stretch of scrapes began, and ended if it did."""
    cleared = None if stretch.is_last else stretch.until_ts
    return Span(opened_ts=stretch.opened_ts, cleared_ts=cleared)


def rises_of(facts: MetricFacts, column: str) -> Span:
    """Returns from before a counter's first rise to its last, if it has stopped since."""
    rises = np.flatnonzero(np.nan_to_num(facts.columns[column]) > 0)
    first, last = max(int(rises[0]) - 1, 0), int(rises[-1])
    is_last = last == facts.num_scrapes - 1
    return Span(opened_ts=int(facts.ts[first]), cleared_ts=None if is_last else int(facts.ts[last]))


def span_of_window(facts: MetricFacts) -> Span:
    """Returns all of the scrapes, as something that is still so."""
    return Span(opened_ts=int(facts.ts[0]), cleared_ts=None)


def number(
    facts: MetricFacts,
    name: str,
    value: Number | None,
    unit: str,
    expression: str,
    condition: str = "true",
    *,
    threshold: Number | None = None,
    threshold_text: str | None = None,
    baseline: Number | None = None,
    n: int | None = None,
    provenance: Provenance = "measured",
) -> Evidence:
    """Returns a number with the SQL that gives it again."""
    return Evidence(
        name=name,
        value=value,
        unit=unit,
        sql=facts.sql(expression, condition),
        provenance=provenance,
        n=facts.num_scrapes if n is None else n,
        threshold=threshold,
        threshold_text=threshold_text,
        baseline=baseline,
    )
