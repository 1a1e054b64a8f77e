"""hybrid-cache-alignment: full attention finds a prefix, and another KV group has lost it.

What it measures
----------------
On a model with several KV groups, admissions for which the full-attention group found a prefix and
all groups together found none: at least half of those with such a prefix, 20 or more.

Why it matters
--------------
A prefix counts only where every group still has its part. A sliding window or a state keeps little
of it, or only at certain places: the prompt is computed from its beginning although most of its
blocks are there.

When it stays quiet
-------------------
With one group there is nothing to align. Where the full group misses as well, see
`prefix-cache-thrash`. Misses of a full pool move with its use; these do not.

What to do
----------
Keep more of the windows' blocks, choose a smaller or unaligned block, or a state cache that stores
more places.

Source
------
Reports of windows whose tails were recycled and of aligned blocks of a thousand tokens and more.
One half and 20: starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, ruled_out, unused
from diagnose.words import percent, plural

ID = "hybrid-cache-alignment"

MIN_LOOKUPS = 20
"""Admissions that lost a prefix of the full group. Starting value."""
MIN_SHARE = 0.5
"""Their share of those that had one. Starting value."""

SQL = """
SELECT count(*) AS num_lookups,
       count(*) FILTER (num_hit_tokens = 0) AS num_lost,
       sum(num_hit_tokens_full_group::BIGINT - num_hit_tokens)
           FILTER (num_hit_tokens = 0)::BIGINT AS num_tokens,
       min(ts) FILTER (num_hit_tokens = 0) AS first_ts,
       max(ts) FILTER (num_hit_tokens = 0) AS last_ts
FROM request_events
WHERE {where} AND kind = event_kind('admitted') AND num_hit_tokens_full_group > 0
"""
USED_SQL = "SELECT median(usage_ratio) AS used FROM kv_pressure WHERE {where}"


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the groups together lose what the full one has."""
    if len(context.settings.kv_groups) < 2:
        return unused(ID, "KV groups", "one group")
    lacks = lacking(context, ID, "request_events", "num_hit_tokens", "num_hit_tokens_full_group")
    if lacks is not None:
        return lacks
    seen = context.row(SQL)
    share = seen["num_lost"] / max(seen["num_lookups"], 1)
    if seen["num_lost"] < MIN_LOOKUPS or share < MIN_SHARE:
        number = f"{seen['num_lost']:,} of {seen['num_lookups']:,} prefixes lost in another group"
        return healthy(ID, "KV groups", number)
    return _finding(context, seen, share)


def _finding(context: Context, seen: dict[str, Any], share: float) -> Finding:
    sql, groups = context.scope.fill(SQL), len(context.settings.kv_groups)
    used = context.row(USED_SQL)["used"]
    lost = plural(seen["num_lost"], "request")
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=Span(opened_ts=seen["first_ts"], cleared_ts=seen["last_ts"])
        if context.quality.stopped_ts is not None
        else Span(opened_ts=seen["first_ts"], cleared_ts=None),
        sentence=f"{lost} found a prefix in the full-attention group and none in all {groups} KV "
        f"groups together: {percent(share)} of those that had one",
        symptom=f"{seen['num_tokens'] or 0:,} prompt tokens computed again",
        cause=Cause(
            kind="setting",
            sentence=f"geometry: the other of {groups} KV groups no longer hold their part",
        ),
        confidence=("high", "the hit of the full group is recorded beside that of all"),
        rejected=ruled_out(("a full pool", f"{percent(used)} used (median)")),
        evidence=(
            measured(
                "prefixes of the full group that another group had lost", share, "ratio", sql,
                threshold=MIN_SHARE, n=seen["num_lookups"],
            ),
            measured("such admissions", seen["num_lost"], "requests", sql, threshold=MIN_LOOKUPS),
        ),
        impact=Impact(
            cost=(f"{seen['num_tokens'] or 0:,} prompt tokens computed again",),
            numbers=(("num_tokens", seen["num_tokens"]),),
        ),
        num_affected=seen["num_lost"],
        actions=(
            advise(
                "keep more of the windows' blocks, or choose a block and a state cache that allow "
                "shorter prefixes",
                trade_off="memory for what is kept",
            ),
        ),
    )  # fmt: skip


RULE = Rule(id=ID, version=1, prefix="hca", page=__doc__ or "", decide=decide)
