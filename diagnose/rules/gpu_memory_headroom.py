"""gpu-memory-headroom: what is left of the device before anybody raises `gpu_memory_utilization`.

What it measures
----------------
The device's memory without weights, activation peak, graphs and KV pool, as the engine recorded
them when it started. The rule says so, for information, where less than 5 % of the device is left,
or where the utilisation is above its default of 0.92.

Why it matters
--------------
What is left is needed by collectives, by graphs that are captured later, by temporaries and by the
model's own peaks. Raising the share that the engine may fill takes it from them, and an engine that
runs out of memory takes all its requests along.

When it stays quiet
-------------------
On a CPU there is no such share. Where the profile is not recorded, nothing is said.

What to do
----------
Make room in the KV pool by other means first: fewer or shorter requests at once, an 8-bit cache, a
smaller graph list. Lower the utilisation again if memory ran out.

Source
------
The scheduler's own document, chapter on production; vLLM's default of 0.92. 5 %: starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, unused
from diagnose.words import percent

ID = "gpu-memory-headroom"

MIN_LEFT = 0.05
"""Part of the device that nobody has claimed. Starting value."""
DEFAULT_UTILIZATION = 0.92
"""What the engine fills unless told otherwise. Source: vLLM 0.32."""
GIB = 1 << 30
"""Bytes of a gibibyte."""

PARTS = ("memory_weights_bytes", "memory_activation_bytes", "memory_graph_bytes", "memory_kv_bytes")
SQL = f"""
SELECT memory_total_bytes, {", ".join(PARTS)}
FROM engines WHERE engine = {{engine}} ORDER BY started_ts DESC LIMIT 1
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns, for information, how little memory is left on the device."""
    if context.settings.device not in (None, "cuda"):
        return unused(ID, "device memory", f"runs on {context.settings.device}")
    rows = context.rows(SQL)
    seen: dict[str, Any] = rows[0] if rows else dict.fromkeys(("memory_total_bytes", *PARTS))
    missing = tuple(f"engines.{name}" for name, value in seen.items() if value is None)
    if missing:
        return not_measured(ID, missing, "the memory profile is not recorded")
    left = 1 - sum(seen[name] for name in PARTS) / seen["memory_total_bytes"]
    share = context.settings.gpu_memory_utilization
    if left >= MIN_LEFT and (share is None or share <= DEFAULT_UTILIZATION):
        return healthy(ID, "device memory", f"{percent(left)} left for collectives and temporaries")
    return _finding(context, seen, left, share)


def _finding(context: Context, seen: dict[str, Any], left: float, share: float | None) -> Finding:
    sql, opened = context.scope.fill(SQL), context.settings.started_ts or context.scope.start_ts
    parts = ", ".join(f"{name.split('_')[1]} {seen[name] / GIB:.1f} GiB" for name in PARTS)
    return finding(
        context,
        RULE,
        severity=Severity.info,
        span=Span(opened_ts=opened, cleared_ts=None),
        sentence=f"{percent(left)} of the device's {seen['memory_total_bytes'] / GIB:.1f} GiB is "
        f"left for collectives, later graphs and temporaries ({parts}): raising "
        "gpu_memory_utilization would take it from them",
        symptom=f"{percent(left)} of the device unclaimed",
        cause=Cause(
            kind="setting",
            sentence="setting: gpu_memory_utilization is "
            f"{'not recorded' if share is None else f'{share:g}'}",
        ),
        confidence=("medium", "parts as profiled at the start; peaks may come later"),
        evidence=(
            measured(
                "memory that nobody has claimed", left, "ratio", sql, threshold=MIN_LEFT,
                provenance="derived",
            ),
            measured(
                "gpu_memory_utilization", share, "ratio", sql, threshold=DEFAULT_UTILIZATION
            ),
        ),
        impact=Impact(numbers=tuple((name, seen[name]) for name in PARTS)),
        actions=_actions(share),
    )  # fmt: skip


def _actions(share: float | None) -> tuple[Action, ...]:
    if share is None or share <= DEFAULT_UTILIZATION:
        return ()
    return (
        advise(
            "go back to the default if memory runs out",
            flag="--gpu-memory-utilization",
            old=f"{share:g}",
            new=f"{DEFAULT_UTILIZATION:g}",
            trade_off="a smaller KV pool",
        ),
    )


RULE = Rule(id=ID, version=1, prefix="gmh", page=__doc__ or "", decide=decide)
