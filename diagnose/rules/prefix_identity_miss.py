"""prefix-identity-miss: prompts share text, and the cache cannot see it.

What it measures
----------------
Prompt blocks with the same content as an earlier request's, at another place or under other keys
(adapter, salt, image), against all that missed: more than half, 100 blocks or more.

Why it matters
--------------
A block is found only behind the same tokens and under the same keys. A date or an id in the first
line makes every prompt new to the cache, however much of it repeats.

When it stays quiet
-------------------
Text that was there under its own keys and has been evicted is `prefix-cache-thrash`. Prompts that
really differ are no fault.

What to do
----------
Put what never changes first, what changes last; leave dates and ids out of the first lines; use one
salt and one adapter where they may share.

Source
------
Report of prompts with an image in front that never hit. One half and 100 blocks: starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out, unused
from diagnose.words import percent

ID = "prefix-identity-miss"

MIN_SHARE = 0.5
"""Missed blocks whose content was there under other keys. Starting value."""
MIN_BLOCKS = 100
"""Such blocks. Starting value."""

SQL = """
SELECT count(*) AS num_requests, sum(a.shared_content_blocks)::BIGINT AS num_blocks,
       sum(greatest(a.num_prompt_tokens::BIGINT - e.num_hit_tokens::BIGINT, 0))::BIGINT
           AS num_missed_tokens,
       min(e.ts) AS first_ts, max(e.ts) AS last_ts
FROM request_events AS e JOIN request_arrivals AS a USING (engine, request)
WHERE e.engine = {engine} AND e.ts BETWEEN {start} AND {end}
  AND e.kind = event_kind('admitted') AND e.num_hit_tokens IS NOT NULL
  AND a.shared_content_blocks > 0
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where repeated text missed for its keys or its place."""
    settings = context.settings
    if settings.enable_prefix_caching is False:
        return unused(ID, "prefix keys", "prefix cache off")
    lacks = lacking(context, ID, "request_arrivals", "shared_content_blocks")
    if lacks is not None:
        return lacks
    if settings.block_size is None:
        return not_measured(ID, ("engines.block_size",))
    seen = context.row(SQL)
    num_blocks, missed = seen["num_blocks"] or 0, seen["num_missed_tokens"] or 0
    share = num_blocks * settings.block_size / max(missed, 1)
    if num_blocks < MIN_BLOCKS or share <= MIN_SHARE:
        return healthy(ID, "prefix keys", f"{num_blocks:,} blocks repeat under other keys")
    return _finding(context, seen, min(share, 1.0))


def _finding(context: Context, seen: dict[str, Any], share: float) -> Finding:
    sql = context.scope.fill(SQL)
    is_open = context.quality.stopped_ts is None
    return finding(
        context,
        RULE,
        severity=Severity.medium,
        span=Span(opened_ts=seen["first_ts"], cleared_ts=None if is_open else seen["last_ts"]),
        sentence=f"{seen['num_blocks']:,} KV blocks of {seen['num_requests']:,} prompts repeat "
        "earlier text at another place or under other keys, and were computed again",
        symptom=f"{percent(share)} of what missed had been computed under other keys",
        cause=Cause(
            kind="new_traffic",
            sentence="prompts: what changes stands in front of what repeats, or keys differ",
        ),
        confidence=("medium", "content is compared by hashes of blocks"),
        rejected=ruled_out(("eviction", "nothing was cached under these keys")),
        evidence=(
            measured(
                "missed blocks that repeat earlier text", share, "ratio", sql,
                threshold=MIN_SHARE, n=seen["num_requests"], provenance="derived",
            ),
            measured(
                "such blocks", seen["num_blocks"], "blocks", sql, threshold=MIN_BLOCKS,
                provenance="derived",
            ),
        ),
        impact=Impact(
            cost=(f"{seen['num_blocks']:,} blocks computed again",),
            numbers=(("num_blocks", seen["num_blocks"]),),
        ),
        num_affected=seen["num_requests"],
        actions=(
            advise(
                "put what never changes first in the prompt, and use one salt and adapter where "
                "requests may share",
                applies="client",
                trade_off="prompts have to be rewritten",
            ),
        ),
    )  # fmt: skip


RULE = Rule(id=ID, version=1, prefix="pim", page=__doc__ or "", decide=decide)
