"""kv-head-of-line: a large request at the head of the queue holds up small ones that would fit.

What it measures
----------------
Steps whose admission ended because the head of the queue needs more KV blocks than are free, while
slots, token budget and a tenth of the pool were left, and another of the next 16 requests, at most
half its size, would have fitted. The rule fires where that ended at least half of the steps with a
queue, 20 or more of them.

Why it matters
--------------
Admission is in order: what is behind waits although there is room for it. The cache gauge shows
room, nobody is evicted, and first tokens come late.

When it stays quiet
-------------------
A head that the pool can never hold is `request-exceeds-kv-capacity`; a head that waits for tokens
of the step, not for blocks, is `prefill-head-of-line`. Where no follower would fit either, or less
than a tenth is free, the pool is simply full: among requests of mixed lengths some follower always
fits into what is left.

What to do
----------
Send long contexts to an engine of their own, or make short requests more urgent (policy
`priority`). Reserving the whole prompt makes the head wait longer, and spares it from eviction.

Source
------
Report of a long-context request at the head with short ones behind it. 16 followers: what the
record looks at; 20 steps and one half: starting values; the others were tuned on the fault matrix.
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
"""Share of the steps with a queue. Starting value."""
MIN_FREE = 0.1
"""Part of the pool that the head leaves free. Source: tuned on seeds 0-5 of benchmarks/faults.py:
a pool that is full of equal requests leaves up to 0.06."""
MIN_SIZE_RATIO = 2
"""The head's need against the follower's. Source: tuned on seeds 0-5 of benchmarks/faults.py: from
12 where one large prompt holds up small ones."""

HELD_UP = f"""
    stop_reason_name(stop_reason)
        IN ('kv_blocks_chunk', 'kv_blocks_whole_prompt', 'kv_watermark', 'kv_reserved_for_loads')
    AND head_blocks_needed > num_blocks_free_unhashed + num_blocks_free_cached
    AND min_follower_blocks_needed <= num_blocks_free_unhashed + num_blocks_free_cached
    AND head_blocks_needed >= {MIN_SIZE_RATIO} * min_follower_blocks_needed
    AND num_blocks_free_unhashed + num_blocks_free_cached >= {MIN_FREE} * coalesce((
        SELECT max(num_usable_blocks) FROM engines AS e WHERE e.engine = steps.engine
    ), 0)
    AND coalesce(num_scheduled_tokens < token_budget, true)
"""
"""Whether the head of a step's queue held up somebody who would have fitted."""

MOMENTS_SQL = f"SELECT ts FROM steps WHERE engine = {{engine}} AND ts <= {{end}} AND {HELD_UP}"
SQL = f"""
SELECT coalesce(sum(num_repeats) FILTER ({HELD_UP}), 0)::BIGINT AS num_held_up,
       coalesce(sum(num_repeats), 0)::BIGINT AS num_steps,
       mode(head_request) FILTER ({HELD_UP}) AS head,
       max(head_blocks_needed) FILTER ({HELD_UP}) AS needed,
       median(num_blocks_free_unhashed + num_blocks_free_cached) FILTER ({HELD_UP}) AS free,
       min(min_follower_blocks_needed) FILTER ({HELD_UP}) AS least,
       max(num_waiting) FILTER ({HELD_UP}) AS most_waiting,
       sum(updated_ts - ts) FILTER ({HELD_UP})::BIGINT AS held_ns
FROM steps WHERE {{where}} AND num_waiting > 0
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the head holds up requests that fit."""
    lacks = lacking(context, ID, "steps", "stop_reason", "num_waiting", "num_blocks_free_unhashed")
    if lacks is not None:
        return lacks
    episode = worst_episode(context, MOMENTS_SQL)
    if episode is None:
        return healthy(ID, "head of the queue", "held up nobody who fits")
    seen = read_row(context.log, episode.stretch.fill(SQL))
    share = seen["num_held_up"] / max(seen["num_steps"], 1)
    if seen["num_held_up"] < MIN_STEPS or share < MIN_SHARE:
        number = (
            f"held up somebody who fits in {seen['num_held_up']:,} of {seen['num_steps']:,} steps"
        )
        return healthy(ID, "head of the queue", number)
    return _finding(context, episode, seen, share)


def _finding(context: Context, episode: Episode, seen: dict[str, Any], share: float) -> Finding:
    sql, pool = episode.stretch.fill(SQL), context.settings.num_usable_blocks
    head, needed, free = seen["head"], seen["needed"], round(seen["free"])
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=episode.span,
        sentence=f"Request {count(head)} at the head needs {needed:,} KV blocks and {free:,} are "
        f"free; up to {seen['most_waiting']:,} requests wait behind it, and some need only "
        f"{seen['least']:,}",
        symptom=f"{percent(share)} of {seen['num_steps']:,} steps with a queue ended at its head",
        cause=Cause(
            kind="oversized_request",
            sentence=f"large request: {needed:,} of {count(pool)} blocks at once, others need from "
            f"{seen['least']:,}",
        ),
        confidence=("high", "need of head and followers, and free blocks, are recorded"),
        rejected=ruled_out(
            ("too large for the pool", f"needs {needed:,} of {count(pool)} blocks"),
            ("preemption", f"{context.accounting.num_from_kv:,} for want of blocks"),
        ),
        evidence=(
            measured(
                "steps with a queue in which somebody behind the head would have fitted", share,
                "ratio", sql, threshold=MIN_SHARE, n=seen["num_steps"],
            ),
            measured(
                "blocks that the head needs", needed, "blocks", sql, threshold=free,
                threshold_text=f"free {free:,}", n=seen["num_held_up"],
            ),
            measured("least blocks that a follower needs", seen["least"], "blocks", sql),
        ),
        impact=Impact(
            cost=(f"up to {plural(seen['most_waiting'], 'request')} held up",),
            numbers=(("max_waiting", seen["most_waiting"]), ("held_ns", seen["held_ns"])),
        ),
        num_affected=seen["most_waiting"],
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
    version=2,
    prefix="khl",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("request-exceeds-kv-capacity", "admission-deadlock"),
)
