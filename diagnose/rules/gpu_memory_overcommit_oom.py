"""gpu-memory-overcommit-oom: the device ran out of memory.

What it measures
----------------
Lines of the engine's log that say that an allocation on the device failed, and whether the engine
was ready before.

Why it matters
--------------
At start it does not come up; while it serves, every request in it is lost. The pool was sized so
that graphs, communication or a large batch had no room left.

When it stays quiet
-------------------
A smaller pool after a restart is safe: `kv-pool-shrunk-by-reserve`. No scrape tells of a failed
allocation: without the log it is not measured.

What to do
----------
Lower `gpu_memory_utilization` in steps of 0.01 to 0.03 until it starts. To see whether graphs are
what takes the room, start once with `--enforce-eager`.

Source
------
Reports of 0.98 and 0.95 that failed while graphs were captured, where 0.97 and 0.90 came up. One
line is enough: no threshold.
"""

from __future__ import annotations

from diagnose.advice import VERIFY
from diagnose.finding import Action, Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.log_evidence import LogEvidence, has_log, log_evidence
from diagnose.metric_finding import found
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import not_measured, ruled_out
from diagnose.words import plural

ID = "gpu-memory-overcommit-oom"

STEP = 0.02
"""By how much the utilisation is lowered. Source: playbook, 0.01 to 0.03."""


def decide_metrics(context: Context, earlier: Earlier) -> RuleVerdict:
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


RULE = Rule(id=ID, version=1, prefix="oom", page=__doc__ or "", decide_metrics=decide_metrics)
