"""kv-head-of-line: a large request at the head of the queue holds up small ones that would fit.

What it measures
----------------
Steps whose admission ended because the head of the queue needs more KV blocks than are free, while
slots, token budget and a tenth of the pool were left, and another of the next 16 requests, at most
half its size, would have fitted. The rule fires where that ended at least half of the steps in
which somebody waited behind the head, 20 or more of them. Blocks that the watermark keeps are free
to no admission: they count as taken, and are no part of what the head itself needs. A head that
waits for what KV loads have reserved is not judged: how much that is, is not recorded.

Why it matters
--------------
Admission is in order: what is behind waits although there is room for it. The cache gauge shows
room, nobody is evicted, and first tokens come late.

When it stays quiet
-------------------
A head that the pool can never hold is `request-exceeds-kv-capacity`; a head that waits for tokens
of the step, not for blocks, is `prefill-head-of-line`. Where no follower would fit either, or less
than a tenth is free, the pool is simply full: among requests of mixed lengths some follower always
fits into what is left. A large request that waits alone holds up nobody.

What to do
----------
Send long contexts to an engine of their own, or make short requests more urgent (policy
`priority`). Reserving the whole prompt makes the head wait longer, and spares it from eviction.

Source
------
Report of a long-context request at the head with short ones behind it. Watermark: vLLM's check of
an admission, needed + watermark <= free. 16 followers: what the record looks at; 20 steps and one
half: starting values; the others were tuned on the fault matrix.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.episodes import Episode, worst_episode
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, ruled_out
from diagnose.words import count, percent, plural

ID = "kv-head-of-line"

MIN_STEPS = 20
"""Steps in which the head held up somebody who fits. Starting value."""
MIN_SHARE = 0.5
"""Share of the steps in which somebody waited behind the head. Starting value."""
MIN_FREE = 0.1
"""Part of the pool that the head leaves free, without the watermark. Source: tuned on seeds 0-5 of
benchmarks/faults.py: a pool that is full of equal requests leaves up to 0.06."""
MIN_SIZE_RATIO = 2
"""The head's need against the follower's. Source: seeds 0-23 of benchmarks/faults.py: from 73 where
one large prompt holds up small ones."""

QUEUED = "(num_waiting - coalesce(num_kv_holding_waiting, 0))::BIGINT"
"""Who waits for admission, the head too: not those whose KV is on its way into their blocks."""
FREE = "num_blocks_free_unhashed + num_blocks_free_cached"
OWN_NEED = (
    "head_blocks_needed::BIGINT - "
    "CASE WHEN stop_reason_name(stop_reason) = 'kv_watermark' THEN {kept} ELSE 0 END"
)
"""Blocks that the head itself needs: where the watermark stops it, the record adds that."""
HELD_UP = f"""
    stop_reason_name(stop_reason)
        IN ('kv_blocks_chunk', 'kv_blocks_whole_prompt', 'kv_watermark')
    AND head_blocks_needed > {FREE}
    AND min_follower_blocks_needed + {{kept}} <= {FREE}
    AND {OWN_NEED} >= {MIN_SIZE_RATIO} * min_follower_blocks_needed
    AND {FREE} >= {{kept}} + {MIN_FREE} * {{pool}}
    AND coalesce(num_scheduled_tokens < token_budget, true)
"""
"""Whether the head of a step's queue held up somebody who would have fitted."""

MOMENTS_SQL = (
    f"SELECT ts FROM steps WHERE engine = {{{{engine}}}} AND ts <= {{{{end}}}} AND {HELD_UP}"
)
SQL = f"""
SELECT coalesce(sum(num_repeats) FILTER ({HELD_UP}), 0)::BIGINT AS num_held_up,
       coalesce(sum(num_repeats), 0)::BIGINT AS num_steps,
       mode(head_request) FILTER ({HELD_UP}) AS head,
       max(head_blocks_needed) FILTER ({HELD_UP}) AS needed,
       arg_max({OWN_NEED}, head_blocks_needed) FILTER ({HELD_UP}) AS own_need,
       median({FREE}) FILTER ({HELD_UP}) AS free,
       min(min_follower_blocks_needed) FILTER ({HELD_UP}) AS least,
       max({QUEUED}) FILTER ({HELD_UP}) - 1 AS most_behind,
       sum(updated_ts - ts) FILTER ({HELD_UP})::BIGINT AS held_ns
FROM steps WHERE {{{{where}}}} AND {QUEUED} > 1
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the head holds up requests that fit."""
    lacks = lacking(context, ID, "steps", "stop_reason", "num_waiting", "num_blocks_free_unhashed")
    if lacks is not None:
        return lacks
    kept, pool = _kept_by_watermark(context), context.settings.num_usable_blocks or 0
    episode = worst_episode(context, MOMENTS_SQL.format(kept=kept, pool=pool))
    if episode is None:
        return healthy(ID, "head of the queue", "held up nobody who fits")
    sql = episode.stretch.fill(SQL.format(kept=kept, pool=pool))
    seen = read_row(context.log, sql)
    share = seen["num_held_up"] / max(seen["num_steps"], 1)
    if seen["num_held_up"] < MIN_STEPS or share < MIN_SHARE:
        number = (
            f"held up somebody who fits in {seen['num_held_up']:,} of {seen['num_steps']:,} steps"
        )
        return healthy(ID, "head of the queue", number)
    return _finding(context, episode, seen, share, sql)


def _kept_by_watermark(context: Context) -> int:
    """Returns the blocks that the watermark keeps from admissions, as the engine counts them."""
    settings = context.settings
    return int((settings.watermark or 0.0) * (settings.num_gpu_blocks or 0))


def _finding(
    context: Context, episode: Episode, seen: dict[str, Any], share: float, sql: str
) -> Finding:
    pool = context.settings.num_usable_blocks
    head, needed, free = seen["head"], seen["needed"], round(seen["free"])
    kept, behind = needed - seen["own_need"], seen["most_behind"]
    needs = f"needs {needed:,} KV blocks" + (f", {kept:,} for the watermark," if kept else "")
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=episode.span,
        sentence=f"Request {count(head)} at the head {needs} and {free:,} are free; up to "
        f"{plural(behind, 'request')} behind it, and some need only {seen['least']:,}",
        symptom=f"{percent(share)} of {seen['num_steps']:,} steps with somebody behind the head "
        "ended at it",
        cause=Cause(
            kind="oversized_request",
            sentence=f"large request: {seen['own_need']:,} of {count(pool)} blocks at once, "
            f"others need from {seen['least']:,}",
        ),
        confidence=("high", "need of head and followers, and free blocks, are recorded"),
        rejected=ruled_out(
            ("too large for the pool", f"needs {seen['own_need']:,} of {count(pool)} blocks"),
            ("preemption", f"{context.accounting.num_from_kv:,} for want of blocks"),
        ),
        evidence=(
            measured(
                "steps in which one of those behind the head would have fitted", share,
                "ratio", sql, threshold=MIN_SHARE, n=seen["num_steps"],
            ),
            measured(
                "blocks that the head needs", needed, "blocks", sql, threshold=free,
                threshold_text=f"free {free:,}", n=seen["num_held_up"],
            ),
            measured("least blocks that a follower needs", seen["least"], "blocks", sql),
        ),
        impact=Impact(
            cost=(f"up to {plural(behind, 'request')} held up",),
            numbers=(("max_waiting", behind + 1), ("held_ns", seen["held_ns"])),
        ),
        num_affected=behind,
        actions=_actions(context),
    )  # fmt: skip


def _actions(context: Context) -> tuple[Action, ...]:
    apart = advise(
        "send long contexts to an engine of their own",
        applies="client",
        trade_off="a second engine",
    )
    if context.settings.policy != "fcfs":
        return (apart,)
    urgent = advise(
        "serve by priority, and let clients send short requests as more urgent",
        flag="--scheduling-policy",
        old="fcfs",
        new="priority",
        trade_off="long requests wait longer, and are the first to be evicted",
    )
    return apart, urgent


RULE = Rule(
    id=ID,
    version=3,
    prefix="khl",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("request-exceeds-kv-capacity", "admission-deadlock"),
)
