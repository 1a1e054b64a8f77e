"""zero-token-not-budget: requests run and get nothing although the step has tokens left.

What it measures
----------------
Steps in which a running request was given no token while a tenth of the token budget or more was
left, by the recorded reason. The rule fires where one request got nothing for one second and 50
steps without a token between, for a reason other than the budget.

Why it matters
--------------
From outside the request just stops. The gauge counts it as running, the cache is not full, and no
counter moves.

When it stays quiet
-------------------
Without budget left the request simply waits its turn. A pipeline decodes each request only every
few steps (`pipeline_cadence`), and a pause is an operator's act: neither is a fault.

What to do
----------
It depends on the reason: encoder budget or cache, alignment of chunks, drafts that look ahead,
throttled prefills, blocks that a victim cannot release. The finding names what frees them.

Source
------
The scheduler's own document, chapter on production. One tenth, one second and 50 steps: starting
values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import (
    finding,
    healthy,
    lacking,
    measured,
    not_measured,
    ruled_out,
    span_to,
    waited,
)
from diagnose.words import count, duration, plural

ID = "zero-token-not-budget"

MIN_BUDGET_LEFT = 0.1
"""Share of the token budget that is left. Starting value."""
MIN_STILL_NS = NS
"""How long one request gets nothing. Starting value."""
MIN_STEPS = 50
"""In how many steps. Starting value."""

FREED_BY = {
    "max_tokens_in_flight": "the outputs of steps in flight",
    "max_model_len": "nothing: it is as long as max_model_len allows",
    "encoder_budget": "a step with more encoder budget: raise max_num_batched_tokens",
    "encoder_cache": "room in the encoder cache: fewer items at once, or a larger cache",
    "encoder_transfer": "an encoder output that is on its way from elsewhere",
    "block_alignment": "a chunk that ends where a block does: a larger token budget",
    "prefill_lookahead": "room for what the drafter looks ahead",
    "prefill_throttled": "steps in which prefills are not throttled",
    "behind_preempted": "the request in front of it, which was evicted",
    "victim_not_releasable": "a transfer that still reads the victim's blocks",
}
"""What frees a request that got nothing, by ZeroReason."""

LEFT_SQL = f"""
SELECT coalesce(sum(num_repeats), 0)::BIGINT AS num_steps FROM steps
WHERE {{where}} AND num_zero_requests > 0
  AND token_budget::BIGINT - num_scheduled_tokens >= {MIN_BUDGET_LEFT} * token_budget
"""
SQL = f"""
WITH idle AS (
    SELECT r.request, r.step, s.num_repeats, s.ts, coalesce(s.updated_ts, s.ts) AS until_ts,
           zero_reason_name(r.zero_reason) AS reason,
           s.token_budget::BIGINT - s.num_scheduled_tokens >= {MIN_BUDGET_LEFT} * s.token_budget
               AS has_budget
    FROM step_requests AS r JOIN steps AS s USING (engine, step)
    WHERE r.engine = {{engine}} AND r.ts BETWEEN {{start}} AND {{end}}
      AND s.ts BETWEEN {{start}} AND {{end}} AND r.zero_reason IS NOT NULL
), marked AS (
    SELECT *, (step <> lag(step + num_repeats, 1, 0) OVER life
               OR reason <> lag(reason, 1, '') OVER life)::INTEGER AS is_first
    FROM idle
    WHERE has_budget AND reason NOT IN ('token_budget', 'pipeline_cadence', 'paused_all')
    WINDOW life AS (PARTITION BY request ORDER BY step)
), numbered AS (
    SELECT *, sum(is_first) OVER (PARTITION BY request ORDER BY step) AS stretch FROM marked
), stretches AS (
    SELECT request, reason, min(ts) AS start_ts, max(until_ts) AS until_ts,
           sum(num_repeats)::BIGINT AS num_steps
    FROM numbered GROUP BY request, reason, stretch
)
SELECT *, until_ts - start_ts AS still_ns FROM stretches ORDER BY still_ns DESC, request
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where running requests got nothing for another reason than the budget."""
    lacks = lacking(context, ID, "steps", "num_zero_requests", "token_budget")
    if lacks is not None:
        return lacks
    num_steps = context.row(LEFT_SQL)["num_steps"]
    if not num_steps:
        return healthy(ID, "running without a token", "never with budget left")
    dense = context.row("SELECT count(zero_reason) AS n FROM step_requests WHERE {where}")["n"]
    if not dense:
        why = f"{plural(num_steps, 'step')} left somebody without a token; record with detail full"
        return not_measured(ID, ("step_requests.zero_reason",), why)
    still = [
        row
        for row in context.rows(SQL)
        if row["still_ns"] >= MIN_STILL_NS and row["num_steps"] >= MIN_STEPS
    ]
    if not still:
        return healthy(ID, "running without a token", f"{plural(num_steps, 'step')}, never long")
    return _finding(context, still)


def _finding(context: Context, still: list[dict[str, Any]]) -> Finding:
    sql, worst = context.scope.fill(SQL), still[0]
    requests = {row["request"] for row in still}
    until = max(row["until_ts"] for row in still)
    reasons = sorted({row["reason"] for row in still})
    lasted = duration(worst["still_ns"])
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=span_to(context, min(row["start_ts"] for row in still), until),
        sentence=f"{plural(len(requests), 'running request')} got no token for up to {lasted} "
        f"although tokens were left, for {', '.join(reasons)}; what frees request "
        f"{count(worst['request'])}: {FREED_BY.get(worst['reason'], 'not known')}",
        symptom=f"request {count(worst['request'])} got nothing in {worst['num_steps']:,} steps",
        cause=Cause(kind="undetermined", sentence=f"undetermined: {', '.join(reasons)}"),
        confidence=("high", "the reason of each request in each step is recorded"),
        rejected=ruled_out(("token budget", "a tenth or more of it was left")),
        evidence=(
            measured(
                "longest time without a token", worst["still_ns"], "ns", sql,
                threshold=MIN_STILL_NS, n=worst["num_steps"],
            ),
            measured(
                "steps of it", worst["num_steps"], "steps", sql, threshold=MIN_STEPS, n=len(still)
            ),
        ),
        impact=Impact(
            cost=(f"{plural(len(requests), 'request')} stood still, up to {lasted}",),
            numbers=(("num_requests", len(requests)), ("still_ns", worst["still_ns"])),
        ),
        affected=tuple(waited(row["request"], None, row["still_ns"]) for row in still[:10]),
        num_affected=len(requests),
        actions=(
            advise(
                f"free them: {FREED_BY.get(worst['reason'], 'see the reason')}",
                trade_off="depends on the reason",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=1,
    prefix="ztb",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("encoder-budget-zero-progress",),
)
