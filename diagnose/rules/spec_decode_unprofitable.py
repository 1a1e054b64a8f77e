"""spec-decode-unprofitable: drafts cost more than they bring.

What it measures
----------------
Steps that only decode, with drafts against those without, at similar numbers of running requests:
output tokens of a request in a step, over the time that a step takes. The rule fires where the gain
is below 0.95, with 20 steps of each kind or more. Where no step ran without drafts, it fires below
20 % of accepted tokens over 1,000 drafted ones, and says that it is not sure.

Why it matters
--------------
Each rejected draft is a token computed for nothing. With large batches the device has no time to
spare for it, and output is slower than without speculation.

When it stays quiet
-------------------
Acceptance alone is no proof: at a batch of one, 20 % may pay, and at 600 running requests 60 % may
not. Steps that compute prompts are left out on both sides.

What to do
----------
Fewer drafts a step, another proposer, or speculation off above the batch at which it broke even.

Source
------
Report of n-grams proposed on the device under asynchronous scheduling: 1.2 % accepted, 11 % less
output. 20 %: the playbook's starting value; 1,000 drafts: starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, span_to, unused
from diagnose.words import count, percent

ID = "spec-decode-unprofitable"

MIN_GAIN = 0.95
"""Output rate with drafts against without. Source: playbook."""
MIN_STEPS = 20
"""Steps of each kind. Starting value."""
MIN_ACCEPTED = 0.2
"""Accepted for each drafted token, where there is nothing to compare with. Source: playbook."""
MIN_DRAFTED = 1000
"""Drafted tokens needed to judge by that. Starting value."""

SQL = """
WITH decodes AS (
    SELECT ts, num_draft_tokens > 0 AS drafts, floor(log2(num_decode_requests)) AS size,
           updated_ts - ts AS step_ns, num_decode_requests AS n,
           num_decode_tokens + coalesce(num_accepted, 0) AS num_output
    FROM steps
    WHERE {where} AND num_decode_requests > 0 AND num_repeats = 1 AND updated_ts > ts
      AND coalesce(num_prefill_tokens, 0) + coalesce(num_recomputed_tokens, 0) = 0
), sizes AS (
    SELECT size, count(*) FILTER (drafts) AS num_with, count(*) FILTER (NOT drafts) AS num_without,
           median(step_ns) FILTER (drafts) AS with_ns,
           median(step_ns) FILTER (NOT drafts) AS without_ns,
           avg(num_output / n) FILTER (drafts) AS with_output,
           avg(num_output / n) FILTER (NOT drafts) AS without_output
    FROM decodes GROUP BY size
), compared AS (
    SELECT *, (with_output / without_output) / (with_ns / without_ns) AS gain
    FROM sizes WHERE num_with > 0 AND num_without > 0
)
SELECT sum(num_with)::BIGINT AS num_with, sum(num_without)::BIGINT AS num_without,
       sum(gain * num_with) / nullif(sum(num_with), 0) AS gain
FROM compared
"""
DRAFTS_SQL = """
SELECT sum(num_placed)::BIGINT AS num_placed, sum(num_accepted)::BIGINT AS num_accepted,
       sum(draft_ns)::BIGINT AS draft_ns, min(ts) FILTER (num_placed > 0) AS first_ts,
       max(updated_ts) FILTER (num_placed > 0) AS last_ts
FROM steps WHERE {where}
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where drafts make output slower."""
    if not context.settings.num_speculative_tokens:
        return unused(ID, "drafts", "no speculation")
    drafts = context.row(DRAFTS_SQL)
    placed, accepted = drafts["num_placed"], drafts["num_accepted"] or 0
    if not placed:
        return not_measured(ID, ("steps.num_placed",), "no draft was verified")
    ratio, seen = accepted / placed, context.row(SQL)
    compares = (seen["num_with"] or 0) >= MIN_STEPS and (seen["num_without"] or 0) >= MIN_STEPS
    if not compares and placed < MIN_DRAFTED:
        why = f"{count(placed)} tokens drafted, and no steps without drafts to compare with"
        return not_measured(ID, ("steps.num_accepted",), why)
    gain = seen["gain"] if compares else None
    if (gain is not None and gain >= MIN_GAIN) or (gain is None and ratio >= MIN_ACCEPTED):
        told = "" if gain is None else f", {gain:.2f} x the output rate"
        return healthy(ID, "drafts accepted", f"{percent(ratio)}{told}")
    return _finding(context, drafts, ratio, gain, seen)


def _finding(
    context: Context,
    drafts: dict[str, Any],
    ratio: float,
    gain: float | None,
    seen: dict[str, Any],
) -> Finding:
    placed = drafts["num_placed"]
    wasted = placed - (drafts["num_accepted"] or 0)
    loses = "" if gain is None else f": output came at {gain:.2f} times the rate without drafts"
    return finding(
        context,
        RULE,
        severity=Severity.medium,
        span=span_to(context, drafts["first_ts"], drafts["last_ts"]),
        sentence=f"{percent(ratio)} of {placed:,} drafted tokens were right{loses}",
        symptom=f"{wasted:,} drafted tokens were rejected",
        cause=Cause(
            kind="setting",
            sentence=f"setting: {count(context.settings.num_speculative_tokens)} drafts a step",
        ),
        confidence=("high", f"{seen['num_with']:,} steps with drafts, {seen['num_without']:,} "
                    "without, at equal batch sizes")
        if gain is not None
        else ("medium", "whether it pays takes a comparison with speculation off"),
        evidence=(
            measured(
                "output rate with drafts against without", gain, "x", context.scope.fill(SQL),
                threshold=MIN_GAIN, n=seen["num_with"], provenance="derived",
            ),
            measured(
                "accepted for each drafted token", ratio, "ratio",
                context.scope.fill(DRAFTS_SQL), threshold=MIN_ACCEPTED, n=placed,
            ),
        ),
        impact=Impact(
            cost=(f"{wasted:,} tokens computed for nothing",),
            numbers=(("num_rejected_tokens", wasted), ("draft_ns", drafts["draft_ns"])),
        ),
        actions=(
            advise(
                "fewer drafts a step, another proposer, or speculation off; compare output",
                trade_off="single requests may become slower",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=2,
    prefix="sdu",
    page=__doc__ or "",
    decide=decide,
)
