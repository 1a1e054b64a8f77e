"""grammar-step-cost: structured output makes each step longer.

What it measures
----------------
Time spent filling grammar bitmasks, as a share of the steps that filled any: 10 % or more over 50
steps. It stands beside the sampler's time and the waits for grammars, which are other things.

Why it matters
--------------
A bitmask is filled on the CPU between two forward passes: everybody in the batch waits for it, also
those without a grammar.

When it stays quiet
-------------------
Requests that wait for a compile are `grammar-wait-stall`: they are not in the step. Where the
source does not time bitmasks apart from sampling, it is not measured.

What to do
----------
Simpler grammars, fewer constrained requests in one batch, or an engine of their own for them.

Source
------
The scheduler's own document, chapter on production. 10 % and 50 steps: starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, ruled_out, span_to, unused
from diagnose.words import duration, percent

ID = "grammar-step-cost"

MIN_SHARE = 0.1
"""Share of a step's time. Starting value."""
MIN_STEPS = 50
"""Steps that filled a bitmask. Starting value."""

SQL = """
SELECT count(*) AS num_steps, sum(bitmask_ns)::BIGINT AS bitmask_ns,
       sum(sample_ns)::BIGINT AS sample_ns, sum(updated_ts - ts)::BIGINT AS step_ns,
       (quantile_cont(bitmask_ns, 0.95))::BIGINT AS p95_ns,
       min(ts) AS first_ts, max(updated_ts) AS last_ts
FROM steps WHERE {where} AND bitmask_ns > 0
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where bitmasks take much of the steps."""
    seen = context.row(SQL)
    if not seen["num_steps"]:
        if context.quality.has_grammars:
            return not_measured(ID, ("steps.bitmask_ns",), "not timed apart from sampling")
        return unused(ID, "bitmasks", "not in use")
    share = seen["bitmask_ns"] / max(seen["step_ns"] or 0, 1)
    if seen["num_steps"] < MIN_STEPS or share < MIN_SHARE:
        number = f"{percent(share)} of {seen['num_steps']:,} steps' time"
        return healthy(ID, "bitmasks", number)
    return _finding(context, seen, share)


def _finding(context: Context, seen: dict[str, Any], share: float) -> Finding:
    sql = context.scope.fill(SQL)
    return finding(
        context,
        RULE,
        severity=Severity.medium,
        span=span_to(context, seen["first_ts"], seen["last_ts"]),
        sentence=f"Filling grammar bitmasks took {percent(share)} of {seen['num_steps']:,} steps' "
        f"time, {duration(seen['p95_ns'])} of a step at p95; sampling took "
        f"{duration(seen['sample_ns'])} in all",
        symptom=f"{duration(seen['bitmask_ns'])} spent on bitmasks between forward passes",
        cause=Cause(
            kind="new_traffic",
            sentence="structured output: each constrained request adds a row to every step",
        ),
        confidence=("high", "bitmasks, sampling and steps are timed apart"),
        rejected=ruled_out(
            ("sampling", f"{duration(seen['sample_ns'])} in the same steps"),
            ("compiles", "their requests are not in the step"),
        ),
        evidence=(
            measured(
                "share of the steps' time spent on bitmasks", share, "ratio", sql,
                threshold=MIN_SHARE, n=seen["num_steps"],
            ),
            measured("bitmasks of a step, p95", seen["p95_ns"], "ns", sql, n=seen["num_steps"]),
        ),
        impact=Impact(
            cost=(f"{duration(seen['bitmask_ns'])} that everybody in the batch waited",),
            numbers=(("bitmask_ns", seen["bitmask_ns"]), ("sample_ns", seen["sample_ns"])),
        ),
        actions=(
            advise(
                "simpler grammars, or an engine of their own for constrained requests",
                applies="client",
                trade_off="another engine",
            ),
        ),
    )  # fmt: skip


RULE = Rule(id=ID, version=1, prefix="gsc", page=__doc__ or "", decide=decide)
