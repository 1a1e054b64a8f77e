"""prompt-mix-exceeds-limits: the engine lets in more of this traffic than its pool holds.

What it measures
----------------
Requests at full length (prompt and output) against the KV pool, the slots and the tokens of a step:
how many of 95th-percentile length fit at once, how many were in the engine, and what share of the
traffic is longer than an even share of the pool. It says so, for information, where more were in
the engine than fit.

Why it matters
--------------
`max_num_seqs`, the pool and the step's tokens are set for a mix of lengths. When the mix changes,
limits that were right are not: requests queue or are evicted though nothing is broken.

When it stays quiet
-------------------
Where requests are evicted for it, the preemption rules say so with the cause. Where fewer are in
the engine than fit, the limits are wide enough.

What to do
----------
Set `max_num_seqs` to what the pool holds at the 95th percentile, or send long requests elsewhere.

Source
------
The scheduler's own document, chapter on production. 20 requests: starting value.
"""

from __future__ import annotations

import numpy as np

from diagnose.advice import fewer_slots
from diagnose.capacity import Capacity, measure_capacity
from diagnose.causes.traffic import Traffic, read_traffic
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured
from diagnose.words import count, percent, plural

ID = "prompt-mix-exceeds-limits"

MIN_REQUESTS = 20
"""Requests of known length. Starting value."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns, for information, that more are let in than fit at full length."""
    traffic = read_traffic(context.log, context.scope, context.settings)
    capacity = measure_capacity(
        traffic, context.settings, context.scope.start_ts, context.scope.end_ts
    )
    if capacity.pool is None or not context.settings.kv_groups:
        return not_measured(ID, ("engines.num_usable_blocks", "engines.block_size"))
    if capacity.num_measured < MIN_REQUESTS or capacity.holds is None:
        why = f"{plural(capacity.num_measured, 'request')}, {MIN_REQUESTS} are needed"
        return not_measured(ID, ("requests.num_output_tokens",), why)
    if capacity.peak_running <= capacity.holds:
        number = f"{capacity.peak_running:,} at once, the pool holds {capacity.holds:,}"
        return healthy(ID, "lengths", number)
    return _finding(context, traffic, capacity)


def _finding(context: Context, traffic: Traffic, capacity: Capacity) -> Finding:
    slots, pool = capacity.slots or capacity.peak_running, capacity.pool or 0
    even = max(pool // max(min(slots, capacity.peak_running), 1), 1)
    beyond = float(np.mean(traffic.full_blocks > even))
    steps = context.settings.max_num_batched_tokens
    chunked = None if steps is None else float(np.mean(traffic.num_prompt_tokens > steps))
    action = fewer_slots(context.settings, capacity)
    return finding(
        context,
        RULE,
        severity=Severity.info,
        span=Span(opened_ts=context.scope.start_ts, cleared_ts=None),
        sentence=f"The KV pool holds {capacity.holds:,} {capacity.these} to their end, and "
        f"{capacity.peak_running:,} ran at once; {percent(beyond)} of the traffic is longer than "
        f"its even share of {even:,} blocks",
        symptom=f"{percent(beyond)} of requests are longer than an even share of the pool",
        cause=Cause(
            kind="setting",
            sentence=f"setting: max_num_seqs is {count(context.settings.max_num_seqs)}, the pool "
            f"holds {capacity.holds:,}",
        ),
        confidence=("high", f"the lengths of {capacity.num_measured:,} requests are known"),
        evidence=(
            measured(
                "requests that ran at once", capacity.peak_running, "requests", traffic.sql,
                threshold=capacity.holds, threshold_text=f"the pool holds {capacity.holds:,}",
                n=capacity.num_measured, provenance="derived",
            ),
            measured(
                "traffic longer than an even share of the pool", beyond, "ratio", traffic.sql,
                n=len(traffic), provenance="derived",
            ),
            measured(
                "prompts longer than a step", chunked, "ratio", traffic.sql, n=len(traffic),
                threshold_text=f"max_num_batched_tokens {count(steps)}", provenance="derived",
            ),
        ),
        impact=Impact(
            numbers=(
                ("num_requests_pool_holds", capacity.holds),
                ("max_running", capacity.peak_running),
                ("beyond_even_share_ratio", beyond),
            )
        ),
        actions=() if action is None else (action,),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=1,
    prefix="pme",
    page=__doc__ or "",
    decide=decide,
    silenced_by=(
        "kv-preemption-thrash",
        "kv-preemption-pressure",
        "request-exceeds-kv-capacity",
        "queueing-with-kv-full",
        "guard-light-preemption",
    ),
)
