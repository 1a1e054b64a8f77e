"""gpu-memory-overcommit-oom: the device ran out of memory.

What it measures
----------------
The engine failed, or never came up, and what it wrote down says that an allocation on the device
failed; or lines of its log that say so.

Why it matters
--------------
At start it does not come up; while it serves, every request in it is lost. The pool was sized so
that graphs, communication or a large batch had no room left.

When it stays quiet
-------------------
A smaller pool after a restart is safe: `kv-pool-shrunk-by-reserve`. No scrape tells of a failed
allocation.

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

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, ruled_out
from diagnose.words import harmless, plural

ID = "gpu-memory-overcommit-oom"

STEP = 0.02
"""By how much the utilisation is lowered. Source: playbook, 0.01 to 0.03."""

SQL = """
SELECT count(*) AS num_events, min(ts) AS first_ts, max(ts) AS last_ts,
       arg_max(text, ts) AS text,
       bool_or(EXISTS (
           FROM request_events AS r WHERE r.engine = {engine} AND r.ts <= e.ts
             AND r.kind = event_kind('engine_started')
       )) AS was_ready
FROM request_events AS e
WHERE {where} AND kind = event_kind('engine_failed') AND text ILIKE '%out of memory%'
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the engine failed for want of device memory."""
    seen = context.row(SQL)
    if not seen["num_events"]:
        return healthy(ID, "device memory", "no failed allocation")
    return _finding(context, seen)


def _finding(context: Context, seen: dict[str, Any]) -> Finding:
    when = "while it served" if seen["was_ready"] else "before it was ready"
    used = context.settings.gpu_memory_utilization
    told = "" if used is None else f" at gpu_memory_utilization {used:g}"
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=Span(opened_ts=seen["first_ts"], cleared_ts=seen["last_ts"]),
        sentence=f"The device ran out of memory {when}{told}: {harmless(seen['text'], 80)}",
        symptom=f"{plural(seen['num_events'], 'failure')} of an allocation, {when}",
        cause=Cause(
            kind="setting" if used is not None else "undetermined",
            sentence="undetermined: the utilisation is not known"
            if used is None
            else f"setting: gpu_memory_utilization {used:g} leaves no room",
        ),
        confidence=("medium", "what else took the memory is not recorded"),
        rejected=ruled_out(("smaller pool", "an allocation failed")),
        evidence=(
            measured("failed allocations", seen["num_events"], "failures",
                     context.scope.fill(SQL), threshold=0),
        ),
        impact=Impact(
            cost=("all requests in it were lost" if seen["was_ready"] else "it did not come up",),
            numbers=(("num_failures", seen["num_events"]),),
        ),
        actions=_actions(used),
    )  # fmt: skip


def _actions(used: float | None) -> tuple[Action, ...]:
    if used is None:
        return ()
    return (
        advise(
            "leave more room, and look again",
            flag="--gpu-memory-utilization",
            old=f"{used:g}",
            new=f"{max(used - STEP, 0.1):g}",
            trade_off="a smaller KV pool: fewer requests fit",
        ),
    )


RULE = Rule(
    id=ID,
    version=2,
    prefix="oom",
    page=__doc__ or "",
    decide=decide,
)
