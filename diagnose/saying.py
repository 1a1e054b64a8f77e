"""How a rule says what it found, whatever it judged by: one frame for all findings.

`metric_finding` adds what only scrapes need.
"""

from __future__ import annotations

from diagnose.episodes import EPISODE_GAP_NS
from diagnose.finding import (
    Action,
    Affected,
    Cause,
    CauseKind,
    Confidence,
    Evidence,
    Finding,
    Healthy,
    Impact,
    Level,
    Link,
    NotMeasured,
    Number,
    Provenance,
    Rejected,
    Severity,
    Span,
)
from diagnose.rule import Context, Rule


def finding(
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
    affected: tuple[Affected, ...] = (),
    num_affected: int | None = None,
    actions: tuple[Action, ...] = (),
    missing: tuple[str, ...] = (),
    chain: tuple[Link, ...] = (),
) -> Finding:
    """Returns a finding of a rule about the context's engine; its sentence ends in a full stop."""
    return Finding(
        id=rule.new_id(context),
        rule=rule.id,
        rule_version=rule.version,
        severity=severity,
        confidence=Confidence(level=confidence[0], why=confidence[1]),
        span=span,
        engine=context.scope.engine,
        sentence=f"{sentence.removesuffix('.')}.",
        symptom=symptom,
        cause=cause,
        chain=chain,
        rejected=rejected,
        evidence=evidence,
        impact=impact or Impact(),
        affected=affected,
        num_affected=num_affected,
        actions=actions,
        missing=missing,
        data_quality=context.data_quality,
    )


def measured(
    name: str,
    value: Number | None,
    unit: str,
    sql: str,
    *,
    threshold: Number | None = None,
    threshold_text: str | None = None,
    baseline: Number | None = None,
    n: int | None = None,
    provenance: Provenance = "measured",
) -> Evidence:
    """Returns a number with the statement that gives it again."""
    return Evidence(
        name=name,
        value=value,
        unit=unit,
        sql=sql,
        provenance=provenance,
        n=n,
        threshold=threshold,
        threshold_text=threshold_text,
        baseline=baseline,
    )


def waited(request: int, request_id: str | None, waited_ns: int | None = None) -> Affected:
    """Returns a request that got nothing for a while, without having lost anything."""
    return Affected(
        request=request,
        request_id=request_id,
        times=1,
        num_tokens_lost=None,
        num_tokens_recomputed=None,
        evicted_ns=None,
        waited_ns=waited_ns,
    )


def span_to(context: Context, opened_ts: int, last_ts: int) -> Span:
    """Returns the span of what was last seen at `last_ts`.

    It is open while the engine has not ended and no whole gap between episodes has passed since.
    """
    is_recent = context.newest_ts - last_ts < EPISODE_GAP_NS
    is_open = is_recent and context.quality.stopped_ts is None
    return Span(opened_ts=opened_ts, cleared_ts=None if is_open else last_ts)


def healthy(rule_id: str, name: str, number: str) -> Healthy:
    """Returns that a rule has looked and found nothing, with the number that says so."""
    return Healthy(rule=rule_id, name=name, number=number)


def unused(rule_id: str, name: str, why: str) -> Healthy:
    """Returns that there is nothing to judge: the engine does not use it."""
    return Healthy(rule=rule_id, name=name, number=why, is_used=False)


def not_measured(rule_id: str, missing: tuple[str, ...], why: str = "not measured") -> NotMeasured:
    """Returns that a rule lacks something."""
    return NotMeasured(rule=rule_id, missing=missing, why=why)


def lacking(context: Context, rule_id: str, table: str, *columns: str) -> NotMeasured | None:
    """Returns that columns of a table have no value in the window; `None` where each has one.

    Also `None` where the table has no row in the window: nothing happened then.
    """
    counts = ", ".join(f"count({column}) AS {column}" for column in columns)
    seen = context.row(f"SELECT count(*) AS num_rows, {counts} FROM {table} WHERE {{where}}")
    empty = tuple(f"{table}.{column}" for column in columns if not seen[column])
    if not seen["num_rows"] or not empty:
        return None
    return not_measured(rule_id, empty, "not recorded")


def undetermined(why: str) -> Cause:
    """Returns a cause that the evidence cannot tell."""
    return Cause(kind="undetermined", sentence=f"undetermined: {why}")


def ruled_out(*items: tuple[str, str], kind: CauseKind = "undetermined") -> tuple[Rejected, ...]:
    """Returns alternatives, each with the number that spoke against it."""
    return tuple(Rejected(kind=kind, name=name, number=number) for name, number in items)
