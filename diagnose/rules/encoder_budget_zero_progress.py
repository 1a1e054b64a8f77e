"""encoder-budget-zero-progress: an image or a sound can never be scheduled.

What it measures
----------------
More than 1,000 steps in a row that scheduled nothing because of the encoder's budget or cache, or
because a chunk could not end where alignment wants it: the head of the queue was stopped by it, or
running requests got nothing for it. Where the record has no row a request, running requests that
get nothing count if the largest item is more than a step has room for.

Why it matters
--------------
The step loop spins: one core is busy, the device is not, and nothing will ever change. From outside
it looks like a hang or a full queue.

When it stays quiet
-------------------
A worker that hangs completes no steps. A prompt of text that is too large is
`request-exceeds-kv-capacity`. A few steps that wait for the encoder are normal.

What to do
----------
A larger encoder cache or more batched tokens, smaller or fewer items in a request, on hybrid models
no alignment of chunks.

Source
------
Reports of encoder caches held by waiting requests and of aligned chunks that left no room for an
item: 156,000 passes in 25 minutes. 1,000 steps: the playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, ruled_out, unused
from diagnose.stretches import StepStretch, read_stretches, span_of
from diagnose.words import count, duration, plural

ID = "encoder-budget-zero-progress"

MIN_STEPS = 1000
"""Steps in a row. Source: playbook."""

WAITS = """
    stop_reason_name(stop_reason) IN ('encoder_budget', 'encoder_cache', 'block_alignment')
    OR EXISTS (
        FROM step_requests AS r
        WHERE r.engine = steps.engine AND r.step = steps.step
          AND zero_reason_name(r.zero_reason)
              IN ('encoder_budget', 'encoder_cache', 'block_alignment')
    )
    OR (num_zero_requests > 0 AND least(encoder_budget, encoder_cache_reclaimable) < {largest})
"""
"""The last is for records without a row a request: somebody who runs gets nothing, and the largest
item of all is more than the step has room for."""
SPINS = f"num_scheduled_tokens = 0 AND num_running + num_waiting > 0 AND ({WAITS})"
SQL = """
SELECT mode(stop_reason_name(stop_reason)) AS reason, max(num_running + num_waiting) AS num_here,
       arg_max(head_request, step) AS head, max(encoder_budget) AS budget,
       max(encoder_cache_free) AS cache_free
FROM steps WHERE {where} AND num_scheduled_tokens = 0
"""
ITEM_SQL = """
SELECT max(num_embeds) AS largest FROM (
    SELECT unnest(item_embeds) AS num_embeds FROM request_arrivals
    WHERE engine = {engine} AND ts <= {end}
)
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the encoder keeps the steps empty."""
    if not context.row("SELECT count(*) AS n FROM steps WHERE {where} AND encoder_budget > 0")["n"]:
        return unused(ID, "encoder", "not in use")
    lacks = lacking(context, ID, "steps", "stop_reason", "num_scheduled_tokens")
    if lacks is not None:
        return lacks
    largest = context.row(ITEM_SQL)["largest"] or 0
    stretches = read_stretches(context, SPINS.format(largest=largest))
    longest = max(stretches, key=lambda stretch: stretch.num_steps, default=None)
    if longest is None or longest.num_steps <= MIN_STEPS:
        number = plural(longest.num_steps if longest else 0, "empty step")
        return healthy(ID, "encoder", f"at most {number} in a row")
    return _finding(context, longest)


def _finding(context: Context, spin: StepStretch) -> Finding:
    sql = spin.scope.fill(SQL)
    seen: dict[str, Any] = read_row(context.log, sql)
    largest = read_row(context.log, spin.scope.fill(ITEM_SQL))["largest"]
    item = "" if largest is None else f"; the largest item has {largest:,} embeddings"
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(context, spin),
        sentence=f"{spin.num_steps:,} steps in {duration(spin.duration_ns)} scheduled nothing: "
        f"{plural(seen['num_here'], 'request')} wait for the encoder "
        f"(budget {count(seen['budget'])}, {count(seen['cache_free'])} free in its cache){item}",
        symptom=f"{spin.num_steps:,} empty steps in a row",
        cause=Cause(
            kind="oversized_request",
            sentence=f"encoder item without a place: budget {count(seen['budget'])}, cache "
            f"{count(seen['cache_free'])} free, largest item {count(largest)} embeddings",
        ),
        confidence=("high", "the reason of each empty step is recorded"),
        rejected=ruled_out(("a hanging worker", f"{spin.num_steps:,} steps ended")),
        evidence=(
            measured(
                "empty steps in a row", spin.num_steps, "steps", sql, threshold=MIN_STEPS
            ),
            measured(
                "largest item", largest, "embeddings", spin.scope.fill(ITEM_SQL),
                threshold=seen["budget"], threshold_text=f"budget {count(seen['budget'])}",
            ),
        ),
        impact=Impact(
            cost=(f"{plural(seen['num_here'], 'request')} got nothing for "
                  f"{duration(spin.duration_ns)}",),
            numbers=(("num_steps", spin.num_steps), ("stuck_ns", spin.duration_ns)),
        ),
        num_affected=seen["num_here"],
        actions=(
            advise(
                "give the encoder room for the largest item (more batched tokens, a larger "
                "cache), or refuse such items at the router",
                trade_off="memory for the encoder's outputs comes out of the KV pool",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=2,
    prefix="ebz",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("request-exceeds-kv-capacity",),
)
