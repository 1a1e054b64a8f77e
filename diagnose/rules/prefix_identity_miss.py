"""prefix-identity-miss: prompts share text, and the cache cannot see it.

What it measures
----------------
Of the prompt tokens that new requests had to compute (neither hit nor brought by a connector),
those in whole blocks whose content an earlier prompt had, though not behind the same beginning and
under the same keys (adapter, salt, images). The rule fires where they are more than half, in 100
blocks or more.

Why it matters
--------------
A block is found only behind the same tokens and under the same keys. A date or an id in the first
line makes every prompt new to the cache, however much of it repeats.

When it stays quiet
-------------------
Text that was there under its own keys and has been evicted is `prefix-cache-thrash`. Prompts that
really differ are no fault. Where a few salts keep tenants apart, each tenant's own prompts hit, and
little of what misses repeats.

The record cannot tell what keys are for. Where most of the repeated text comes under different
salts or adapters, the finding says so and is of low confidence: salts may keep tenants apart on
purpose, and adapters have other KV for the same text; then this is what that costs, and no fault.

Contents are compared in whole blocks. Text that has moved by less than a block is seen once it has
come at that distance from a block's beginning before: of a shifting text the first few comings are
missed. Only prompts are compared, not outputs, and among the requests that the collector remembers.

What to do
----------
Put what never changes first, what changes last; leave dates and ids out of the first lines; use one
salt and one adapter where requests may share.

Source
------
Report of prompts with an image in front that never hit. One half and 100 blocks: starting values.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from diagnose.advice import advise
from diagnose.facts import EngineSettings
from diagnose.finding import Cause, Finding, Impact, Level, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out, unused
from diagnose.words import percent, plural

ID = "prefix-identity-miss"

MIN_SHARE = 0.5
"""Computed prompt tokens whose content was there under other keys. Starting value."""
MIN_BLOCKS = 100
"""Blocks of them. Starting value."""
MOST = 0.5
"""Repeated text that has to come under keys of one kind for these to be named. Starting value."""

SQL = """
SELECT count(*) FILTER (num_repeated > 0) AS num_requests,
       sum(num_repeated)::BIGINT AS num_repeated, sum(num_missed)::BIGINT AS num_missed,
       min(ts) FILTER (num_repeated > 0) AS first_ts, max(ts) FILTER (num_repeated > 0) AS last_ts,
       coalesce(sum(num_repeated) FILTER (salt_key IS NOT NULL), 0)::BIGINT AS num_salted,
       count(DISTINCT salt_key) FILTER (num_repeated > 0) AS num_salts,
       coalesce(sum(num_repeated) FILTER (adapter IS NOT NULL), 0)::BIGINT AS num_adapted,
       count(DISTINCT adapter) FILTER (num_repeated > 0) AS num_adapters
FROM (
  SELECT ts, salt_key, adapter, num_missed,
         least(shared_content_blocks::BIGINT * $block, num_missed) AS num_repeated
  FROM (
    SELECT e.ts, a.salt_key, a.adapter, a.shared_content_blocks,
           greatest(a.num_prompt_tokens::BIGINT - e.num_hit_tokens::BIGINT
                    - coalesce(e.num_external_tokens, 0)::BIGINT, 0) AS num_missed
    FROM request_events AS e JOIN request_arrivals AS a USING (engine, request)
    WHERE e.engine = {engine} AND e.ts BETWEEN {start} AND {end}
      AND e.kind = event_kind('admitted') AND e.num_hit_tokens IS NOT NULL
      AND coalesce(a.reads_cache, true) AND a.shared_content_blocks IS NOT NULL
  )
)
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where repeated text missed for its keys or its place."""
    settings = context.settings
    if settings.enable_prefix_caching is False:
        return unused(ID, "prefix keys", "prefix cache off")
    lacks = lacking(context, ID, "request_arrivals", "shared_content_blocks")
    if lacks is not None:
        return lacks
    block = _tokens_a_block(settings)
    if block is None:
        return not_measured(ID, ("engines.block_size",))
    seen = context.row(_sql(block))
    repeated, missed = seen["num_repeated"] or 0, seen["num_missed"] or 0
    share, num_blocks = repeated / max(missed, 1), repeated // block
    if num_blocks < MIN_BLOCKS or share <= MIN_SHARE:
        number = f"{percent(share)} of computed prompt tokens repeat under other keys"
        return healthy(ID, "prefix keys", number if missed else "nothing missed")
    return _finding(context, seen, share, block)


def _tokens_a_block(settings: EngineSettings) -> int | None:
    """Returns the tokens of a block that is hashed: what divides the blocks of all KV groups."""
    return gcd(*(group.block_size for group in settings.kv_groups)) or settings.block_size


def _sql(block: int) -> str:
    return SQL.replace("$block", str(block))


def _finding(context: Context, seen: dict[str, Any], share: float, block: int) -> Finding:
    sql = context.scope.fill(_sql(block))
    num_blocks, repeated = seen["num_repeated"] // block, seen["num_repeated"]
    requests = plural(seen["num_requests"], "request")
    is_open = context.quality.stopped_ts is None
    cause, confidence = _cause(seen)
    return finding(
        context,
        RULE,
        severity=Severity.medium,
        span=Span(opened_ts=seen["first_ts"], cleared_ts=None if is_open else seen["last_ts"]),
        sentence=f"{cause.sentence}: {num_blocks:,} KV blocks of {requests} repeat earlier "
        "prompts, and were computed again",
        symptom=f"{percent(share)} of the prompt tokens that were computed had been in an earlier "
        "prompt, at another place or under other keys",
        cause=cause,
        confidence=confidence,
        rejected=ruled_out(
            ("eviction", f"none of these {num_blocks:,} blocks was ever there under its own keys"),
            ("new text", f"{percent(1 - share)} of what was computed was new"),
        ),
        evidence=(
            measured(
                "computed prompt tokens that repeat earlier text", share, "ratio", sql,
                threshold=MIN_SHARE, n=seen["num_requests"], provenance="derived",
            ),
            measured(
                "blocks of them", num_blocks, "blocks", sql, threshold=MIN_BLOCKS,
                provenance="derived",
            ),
            measured(
                "of them under a cache salt", seen["num_salted"] / repeated, "ratio", sql,
                n=seen["num_salts"], provenance="derived",
            ),
            measured(
                "of them under an adapter", seen["num_adapted"] / repeated, "ratio", sql,
                n=seen["num_adapters"], provenance="derived",
            ),
        ),
        impact=Impact(
            cost=(f"{repeated:,} prompt tokens computed again",),
            numbers=(("num_blocks", num_blocks), ("num_tokens_repeated", repeated)),
        ),
        num_affected=seen["num_requests"],
        actions=(
            advise(
                "put what never changes first in the prompt, and use one salt and adapter where "
                "requests may share",
                applies="client",
                trade_off="prompts have to be rewritten; who shares a salt can tell by the time to "
                "its first token whether another has sent the same text",
            ),
        ),
    )  # fmt: skip


def _cause(seen: dict[str, Any]) -> tuple[Cause, tuple[Level, str]]:
    """Returns what keeps the cache from seeing that text repeats, and how sure that is."""
    if seen["num_salts"] > 1 and seen["num_salted"] > MOST * seen["num_repeated"]:
        sentence = f"the same text comes under {seen['num_salts']:,} cache salts"
        why = "salts may keep tenants apart on purpose: then this is what that costs, and no fault"
    elif seen["num_adapters"] > 1 and seen["num_adapted"] > MOST * seen["num_repeated"]:
        sentence = f"the same text comes for {seen['num_adapters']:,} adapters"
        why = "adapters have other KV for the same text: if each is needed, this is no fault"
    else:
        sentence = "what changes stands in front of what repeats"
        why = "text is compared in whole blocks; images and keys that differ look the same"
        return Cause(kind="new_traffic", sentence=sentence), ("medium", why)
    return Cause(kind="new_traffic", sentence=sentence), ("low", why)


RULE = Rule(id=ID, version=2, prefix="pim", page=__doc__ or "", decide=decide)
