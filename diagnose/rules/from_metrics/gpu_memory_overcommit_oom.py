"""gpu-memory-overcommit-oom, from scrapes alone.

Lines of the engine's log that say that an allocation on the device failed, and whether the engine
was ready before.
"""

from __future__ import annotations

from diagnose.advice import VERIFY
from diagnose.finding import Action, Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.log_evidence import LogEvidence, has_log, log_evidence
from diagnose.rule import Context, Earlier
from diagnose.rules.gpu_memory_overcommit_oom import ID, RULE, STEP
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_finding import found
from diagnose.words import plural


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the log tells of a failed allocation."""
    if not has_log(context):
        return not_measured(ID, ("log_lines.kind",), "the engine's log was not read")
    lines = log_evidence(context, "out_of_memory")
    if lines is None:
        return Healthy(rule=ID, name="device memory", number="no failed allocation in its log")
    return _finding(context, lines)


def _finding(context: Context, lines: LogEvidence) -> Finding:
    ready = log_evidence(context, "engine_ready")
    serving = ready is not None and ready.first_ts < lines.first_ts
    when = "while it served" if serving else "before it was ready"
    used = context.settings.gpu_memory_utilization
    told = "" if used is None else f" at gpu_memory_utilization {used:g}"
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=lines.span,
        sentence=f"The device ran out of memory {when}{told}",
        symptom=f"{plural(lines.num, 'line')} of a failed allocation, {when}",
        cause=Cause(
            kind="setting" if used is not None else "undetermined",
            sentence="undetermined: the utilisation is not known"
            if used is None
            else f"setting: gpu_memory_utilization {used:g} leaves no room",
        ),
        confidence=("medium", "the log says that it failed; what else took the memory it does not"),
        rejected=ruled_out(("smaller pool", "an allocation failed")),
        evidence=(lines.evidence("lines of a failed allocation"),),
        impact=Impact(
            cost=("all requests in the engine were lost" if serving else "it did not come up",),
            numbers=(("num_lines", lines.num),),
        ),
        actions=_actions(used),
        missing=("engines.memory_total_bytes",),
        told_by=lines.told_by,
    )


def _actions(used: float | None) -> tuple[Action, ...]:
    if used is None:
        return ()
    return (
        Action(
            what="leave more room, and look again",
            flag="--gpu-memory-utilization",
            old=f"{used:g}",
            new=f"{max(used - STEP, 0.1):g}",
            applies="restart",
            trade_off="a smaller KV pool: fewer requests fit",
            verify=VERIFY,
            revert=f"--gpu-memory-utilization {used:g}",
        ),
    )
