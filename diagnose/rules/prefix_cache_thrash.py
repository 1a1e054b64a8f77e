"""prefix-cache-thrash: prefixes that were computed before are gone when they are asked for again.

What it measures
----------------
For each first admission, the prompt tokens shared with an earlier request (worked out from block
hashes) that the cache no longer had. The rule fires where more than half of all prompt blocks that
missed had been there before, 100 of them or more.

Why it matters
--------------
The cache holds less than the traffic comes back to: each conversation pushes out the next one's
beginning, and long prompts are computed again and again.

When it stays quiet
-------------------
New text misses because it is new; text that differs in an early token or in its keys was never
there under its own (`prefix-identity-miss`). On models with several KV groups see
`hybrid-cache-alignment`. Where the hit rate is inflated by retries, `guard-prefix-hit-inflated`
says so.

What to do
----------
Send a conversation to the engine that has it, add a tier for KV, enlarge the pool, shorten what is
repeated.

Source
------
Report of two prefixes that took each other's blocks in turns. One half: playbook; 100 blocks:
starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out, unused
from diagnose.words import count, percent, plural

ID = "prefix-cache-thrash"

MIN_SHARE = 0.5
"""Missed blocks that had been there before. Source: playbook."""
MIN_BLOCKS = 100
"""Such blocks. Starting value."""

LOOKUPS_SQL = """
SELECT e.ts, e.request, a.num_prompt_tokens::BIGINT AS num_tokens,
       e.num_hit_tokens::BIGINT AS num_hit,
       greatest(coalesce(a.num_shared_tokens, 0)::BIGINT - e.num_hit_tokens::BIGINT, 0)
           AS num_lost
FROM request_events AS e JOIN request_arrivals AS a USING (engine, request)
WHERE e.engine = {engine} AND e.ts BETWEEN {start} AND {end}
  AND e.kind = event_kind('admitted') AND e.num_hit_tokens IS NOT NULL
  AND coalesce(a.reads_cache, true)
"""
SQL = f"""
SELECT count(*) AS num_lookups, sum(num_lost)::BIGINT AS num_lost, sum(num_hit)::BIGINT AS num_hit,
       sum(greatest(num_tokens - num_hit, 0))::BIGINT AS num_missed,
       count(*) FILTER (num_lost > 0) AS num_requests,
       min(ts) FILTER (num_lost > 0) AS first_ts, max(ts) FILTER (num_lost > 0) AS last_ts
FROM ({LOOKUPS_SQL})
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where most of what missed had been computed before."""
    settings = context.settings
    if settings.enable_prefix_caching is False:
        return unused(ID, "prefix cache", "off")
    lacks = lacking(context, ID, "request_arrivals", "num_shared_tokens")
    if lacks is not None:
        return lacks
    if settings.block_size is None:
        return not_measured(ID, ("engines.block_size",))
    seen = context.row(SQL)
    num_lost, num_missed = seen["num_lost"] or 0, seen["num_missed"] or 0
    share, num_blocks = num_lost / max(num_missed, 1), num_lost // settings.block_size
    if num_blocks < MIN_BLOCKS or share <= MIN_SHARE:
        number = f"{percent(share)} of missed tokens had been there before"
        return healthy(ID, "prefix cache", number if num_missed else "nothing missed")
    return _finding(context, seen, share, num_blocks)


def _finding(context: Context, seen: dict[str, Any], share: float, num_blocks: int) -> Finding:
    sql, pool = context.scope.fill(SQL), context.settings.num_usable_blocks
    requests = plural(seen["num_requests"], "request")
    is_open = seen["num_requests"] > 1 and context.quality.stopped_ts is None
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=Span(opened_ts=seen["first_ts"], cleared_ts=None if is_open else seen["last_ts"]),
        sentence=f"{num_blocks:,} KV blocks of prefixes that had been computed before were gone "
        f"when {requests} came back to them: {percent(share)} of what missed",
        symptom=f"{seen['num_lost']:,} prompt tokens computed again, {seen['num_hit']:,} hit",
        cause=Cause(
            kind="new_traffic",
            sentence=f"working set: the traffic comes back to more than the {count(pool)} blocks "
            "that the pool holds beside running requests",
        ),
        confidence=("medium", "shared prefixes are worked out from hashes of blocks"),
        rejected=ruled_out(("new text", f"{percent(1 - share)} of what missed was new")),
        evidence=(
            measured(
                "missed prompt tokens that had been computed before", share, "ratio", sql,
                threshold=MIN_SHARE, n=seen["num_lookups"], provenance="derived",
            ),
            measured(
                "blocks of them", num_blocks, "blocks", sql, threshold=MIN_BLOCKS,
                provenance="derived",
            ),
        ),
        impact=Impact(
            cost=(f"{seen['num_lost']:,} prompt tokens computed again",),
            numbers=(("num_tokens_lost", seen["num_lost"]), ("num_tokens_hit", seen["num_hit"])),
        ),
        num_affected=seen["num_requests"],
        actions=(
            advise(
                "route a conversation to the engine that has its beginning, or add a KV tier",
                applies="client",
                trade_off="engines are loaded less evenly, or host memory is used",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=1,
    prefix="pct",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("hybrid-cache-alignment",),
)
