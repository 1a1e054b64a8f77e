"""priority-recompute-churn: the same unimportant requests are evicted and computed again for ever.

What it measures
----------------
Under the policy `priority`, evictions whose victim was less urgent than the request that got its
blocks: ten or more, at least half of all evictions, with at least one request evicted three times
so. It counts the tokens that were thrown away by priority, and who took the blocks.

Why it matters
--------------
A long request of low priority comes back, is computed again, and is evicted by the next urgent one.
It may never end, and each round costs the work of the round before.

When it stays quiet
-------------------
Evictions among equals are `kv-preemption-pressure` or `kv-preemption-thrash`. One eviction by an
urgent request is what priorities are for.

What to do
----------
Give background work an engine of its own or fewer slots, or raise the priority of a request that
has been evicted.

Source
------
The scheduler's own document, chapter on production. Ten, one half and three: starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.causes.chain import first_eviction
from diagnose.episodes import Episode, worst_episode
from diagnose.finding import Affected, Cause, Finding, Impact, Link, RuleVerdict, Severity
from diagnose.reading import read_row, read_rows
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, ruled_out, unused
from diagnose.words import count, duration, percent, plural

ID = "priority-recompute-churn"

MIN_EVICTIONS = 10
"""Evictions by priority. Starting value."""
MIN_SHARE = 0.5
"""Their share of all evictions for want of blocks. Starting value."""
MIN_TIMES = 3
"""How often one request was evicted so. Starting value."""

MOMENTS_SQL = """
SELECT ts FROM preemptions WHERE engine = {engine} AND ts <= {end} AND cause = 'priority'
"""
SQL = """
SELECT count(*) FILTER (cause = 'priority') AS num_evictions,
       count(*) AS num_all,
       count(DISTINCT request) FILTER (cause = 'priority') AS num_victims,
       count(DISTINCT beneficiary) FILTER (cause = 'priority') AS num_takers,
       sum(num_computed_tokens_lost) FILTER (cause = 'priority')::BIGINT AS num_lost,
       sum(num_tokens_recomputed) FILTER (cause = 'priority')::BIGINT AS num_recomputed,
       max(victim_priority) FILTER (cause = 'priority') AS victim_priority,
       min(beneficiary_priority) FILTER (cause = 'priority') AS taker_priority
FROM preemptions WHERE {where} AND cause IN ('kv_full', 'priority')
"""
TAKER_SQL = """
SELECT r.ts AS arrived_ts
FROM preemptions AS p JOIN requests AS r ON r.engine = p.engine AND r.request = p.beneficiary
WHERE p.engine = {engine} AND p.ts BETWEEN {start} AND {end} AND p.cause = 'priority'
ORDER BY p.ts, p.nth LIMIT 1
"""
"""When the first that took blocks had come."""
VICTIMS_SQL = """
SELECT request, any_value(request_id) AS request_id, count(*) AS times,
       sum(num_computed_tokens_lost)::BIGINT AS num_lost,
       sum(num_tokens_recomputed)::BIGINT AS num_recomputed, sum(out_ns)::BIGINT AS out_ns
FROM preemptions WHERE {where} AND cause = 'priority'
GROUP BY request ORDER BY times DESC, num_lost DESC, request LIMIT 10
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where urgent requests evict the same others again and again."""
    if context.settings.policy is not None and context.settings.policy != "priority":
        return unused(ID, "evictions by priority", f"policy {context.settings.policy}")
    episode = worst_episode(context, MOMENTS_SQL)
    if episode is None:
        return healthy(ID, "evictions by priority", "none")
    seen = read_row(context.log, episode.inside.fill(SQL))
    victims = read_rows(context.log, episode.inside.fill(VICTIMS_SQL))
    share = seen["num_evictions"] / max(seen["num_all"], 1)
    most = victims[0]["times"] if victims else 0
    if seen["num_evictions"] < MIN_EVICTIONS or share < MIN_SHARE or most < MIN_TIMES:
        number = f"{plural(seen['num_evictions'], 'time')}, one request at most {most:,} times"
        return healthy(ID, "evictions by priority", number)
    return _finding(context, episode, seen, victims, share)


def _finding(
    context: Context,
    episode: Episode,
    seen: dict[str, Any],
    victims: list[dict[str, Any]],
    share: float,
) -> Finding:
    sql, worst = episode.inside.fill(SQL), victims[0]
    evictions = plural(seen["num_evictions"], "time")
    cause = Cause(
        kind="priority_churn",
        sentence=f"priority churn: priority {count(seen['taker_priority'])} takes the blocks "
        f"of priority {count(seen['victim_priority'])}",
    )
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=episode.span,
        sentence=f"{plural(seen['num_takers'], 'more urgent request')} evicted "
        f"{plural(seen['num_victims'], 'less urgent one')} {evictions}, request "
        f"{worst['request']} alone {worst['times']:,} times: {count(seen['num_lost'])} computed "
        f"tokens thrown away, {count(seen['num_recomputed'])} computed again",
        symptom=f"{seen['num_evictions']:,} of {seen['num_all']:,} evictions were by priority",
        cause=cause,
        confidence=("high", "both priorities of each eviction are recorded"),
        rejected=ruled_out(("evictions among equals", f"{percent(1 - share)} of all")),
        evidence=(
            measured(
                "evictions by priority", seen["num_evictions"], "evictions", sql,
                threshold=MIN_EVICTIONS, n=seen["num_all"],
            ),
            measured("their share", share, "ratio", sql, threshold=MIN_SHARE, n=seen["num_all"]),
            measured(
                "most evictions of one request", worst["times"], "evictions",
                episode.inside.fill(VICTIMS_SQL), threshold=MIN_TIMES, n=seen["num_victims"],
            ),
        ),
        impact=Impact(
            cost=(f"{count(seen['num_recomputed'])} tokens computed again for priorities",),
            numbers=(
                ("num_evictions", seen["num_evictions"]),
                ("num_tokens_lost", seen["num_lost"]),
                ("num_tokens_recomputed", seen["num_recomputed"]),
            ),
        ),
        affected=tuple(_affected(row) for row in victims),
        num_affected=seen["num_victims"],
        chain=_chain(context, episode, seen, cause),
        actions=(
            advise(
                "give background work an engine of its own, or send it as more urgent once it has "
                "been evicted",
                applies="client",
                trade_off="another engine, or less urgent work among the urgent",
            ),
        ),
    )  # fmt: skip


def _affected(row: dict[str, Any]) -> Affected:
    return Affected(
        request=row["request"],
        request_id=row["request_id"],
        times=row["times"],
        num_tokens_lost=row["num_lost"],
        num_tokens_recomputed=row["num_recomputed"],
        evicted_ns=row["out_ns"],
    )


def _chain(
    context: Context, episode: Episode, seen: dict[str, Any], cause: Cause
) -> tuple[Link, ...]:
    """Returns when the first taker came, whom it cost first, and what all of them cost."""
    takers = read_rows(context.log, episode.inside.fill(TAKER_SQL))
    came = takers[0]["arrived_ts"] if takers else None
    first = first_eviction(
        context.log,
        episode.inside,
        context.settings.num_usable_blocks,
        only="p.cause = preemption_cause('priority')",
    )
    took = duration(episode.last_ts - episode.opened_ts)
    cost = f"{plural(seen['num_evictions'], 'eviction')} by priority within {took}; "
    cost += f"{count(seen['num_lost'])} computed tokens lost, "
    cost += f"{count(seen['num_recomputed'])} computed again"
    return (
        Link(stage="cause", ts=came, sentence=cause.sentence),
        *first,
        Link(stage="impact", ts=episode.last_ts, sentence=cost),
    )


RULE = Rule(
    id=ID,
    version=2,
    prefix="prc",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("request-exceeds-kv-capacity",),
)
