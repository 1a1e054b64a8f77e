"""kv-preemption-pressure, from the iteration lines of a log: recomputation gives it away."""

from __future__ import annotations

from diagnose.finding import Evidence, Finding, Impact, Severity, Span
from diagnose.rule import Context
from diagnose.rules.from_metrics.iteration_lines import IterationLines
from diagnose.rules.kv_preemption_pressure import RULE
from diagnose.saying import ruled_out, undetermined
from diagnose.scrapes.metric_capacity import record_steps
from diagnose.scrapes.metric_finding import found
from diagnose.words import percent

MIN_RECOMPUTED = 0.05
"""Share of all scheduled tokens that was computed again. Starting value: the playbook has the same
for steps that preempt."""
FULL_KV = 0.97
"""KV usage in those steps. Source: playbook."""


def is_pressure(lines: IterationLines) -> bool:
    """Whether enough was computed again, with the pool full."""
    return lines.recomputed_ratio >= MIN_RECOMPUTED and (lines.used or 0) >= FULL_KV


def finding_of(context: Context, lines: IterationLines) -> Finding:
    """Returns pressure that is inferred from recomputation."""
    share = percent(lines.recomputed_ratio)
    opened, last = lines.opened_ts or 0, lines.last_ts or 0
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=Span(opened_ts=opened, cleared_ts=None if last == lines.until_ts else last),
        sentence=f"The KV pool ran full and at least {lines.num_recomputed:,} tokens were computed "
        f"again, {share} of all: requests were preempted, how often no line says",
        symptom=f"{lines.num_surplus_lines:,} of {lines.num_lines:,} steps gave more output tokens "
        "than requests",
        cause=undetermined("which change made it so is in no line"),
        confidence=("medium", "inferred: without drafts only recomputation makes such a step"),
        rejected=ruled_out(("speculation", "no drafts are configured")),
        evidence=_evidence(lines),
        impact=Impact(
            cost=(
                f"at least {lines.num_recomputed:,} tokens computed again = {share} of "
                f"{lines.num_scheduled:,} scheduled",
            ),
            numbers=(
                ("num_preemptions", None),
                ("num_tokens_recomputed", lines.num_recomputed),
                ("recomputed_ratio", lines.recomputed_ratio),
            ),
        ),
        actions=(record_steps(),),
        missing=("vllm:num_preemptions_total", "request_events.cause"),
        told_by=f"from {lines.num_lines:,} iteration lines alone",
    )


def _evidence(lines: IterationLines) -> tuple[Evidence, ...]:
    return (
        Evidence(
            name="tokens computed again, of all scheduled",
            value=lines.recomputed_ratio,
            unit="ratio",
            threshold=MIN_RECOMPUTED,
            n=lines.num_lines,
            provenance="inferred",
            sql=lines.sql,
        ),
        Evidence(
            name="highest KV usage in such steps",
            value=lines.used,
            unit="ratio",
            threshold=FULL_KV,
            n=lines.num_surplus_lines,
            sql=lines.sql,
        ),
    )
