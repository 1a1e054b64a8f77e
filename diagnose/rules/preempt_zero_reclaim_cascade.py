"""preempt-zero-reclaim-cascade: evictions that free nothing, several in one step.

What it measures
----------------
Steps in which two or more requests were evicted and no block became free, because the release of
their blocks waits for a step or a transfer in flight.

Why it matters
--------------
The scheduler evicts one request after the other and has as few blocks as before. In one step the
whole batch can lose its work, for nothing.

When it stays quiet
-------------------
An eviction that frees a block is ordinary pressure or thrash. One eviction whose blocks come a step
later is how asynchronous scheduling works.

What to do
----------
Take a version in which eviction stops and waits for deferred releases; until then turn asynchronous
scheduling off.

Source
------
Report of an engine with asynchronous scheduling and a KV connector whose evictions cascaded. Two in
a step: the playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.causes.chain import first_eviction
from diagnose.episodes import Episode, worst_episode
from diagnose.finding import Action, Cause, Finding, Impact, Link, RuleVerdict, Severity
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, ruled_out
from diagnose.words import connector_name, plural

ID = "preempt-zero-reclaim-cascade"

MIN_FOR_NOTHING = 2
"""Evictions of one step that free nothing. Source: playbook."""

STEPS_SQL = f"""
SELECT step, min(ts) AS ts, count(*) AS num_preemptions,
       count(*) FILTER (num_blocks_freed = 0) AS num_for_nothing,
       sum(num_blocks_deferred)::BIGINT AS num_deferred,
       sum(num_computed_tokens_lost)::BIGINT AS num_tokens_lost
FROM request_events
WHERE {{where}} AND kind = event_kind('preempted')
  AND cause IN (preemption_cause('kv_full'), preemption_cause('priority'))
GROUP BY step
HAVING num_for_nothing >= {MIN_FOR_NOTHING} AND num_deferred > 0
"""
MOMENTS_SQL = f"SELECT ts FROM ({STEPS_SQL})".replace(
    "{where}", "engine = {engine} AND ts <= {end}"
)
MEASURED_SQL = """
SELECT count(*) AS num_rows, count(num_blocks_freed) AS num_freed,
       count(num_blocks_deferred) AS num_deferred
FROM request_events WHERE {where} AND kind = event_kind('preempted')
"""
SQL = f"""
SELECT count(*) AS num_steps, sum(num_for_nothing)::BIGINT AS num_for_nothing,
       max(num_for_nothing) AS most, sum(num_deferred)::BIGINT AS num_deferred,
       sum(num_tokens_lost)::BIGINT AS num_tokens_lost
FROM ({STEPS_SQL})
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where evictions of one step gave no block."""
    seen = context.row(MEASURED_SQL)
    if seen["num_rows"] and not (seen["num_freed"] and seen["num_deferred"]):
        missing = ("preemptions.num_blocks_freed", "preemptions.num_blocks_deferred")
        return not_measured(ID, missing, "not recorded")
    episode = worst_episode(context, MOMENTS_SQL)
    if episode is None:
        number = f"each of {context.accounting.num_from_kv:,} evictions freed blocks"
        return healthy(ID, "evictions", number if context.accounting.num_from_kv else "none")
    return _finding(context, episode, context.log.query(episode.inside.fill(SQL)).to_pylist()[0])


def _finding(context: Context, episode: Episode, seen: dict[str, Any]) -> Finding:
    sql = episode.inside.fill(SQL)
    steps, evictions = plural(seen["num_steps"], "step"), plural(seen["num_for_nothing"], "request")
    cause = Cause(
        kind="code",
        sentence="code: this version goes on evicting while releases wait "
        f"({connector_name(context.settings.kv_connector)})",
    )
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=episode.span,
        sentence=f"In {steps} {evictions} lost their work and no block became free: the release of "
        f"{seen['num_deferred']:,} blocks was put off",
        symptom=f"up to {seen['most']:,} evictions in one step that freed nothing",
        cause=cause,
        confidence=("high", "blocks before and after each eviction are recorded"),
        rejected=ruled_out(("thrash", "its evictions free blocks")),
        evidence=(
            measured(
                "evictions that freed nothing, most in one step", seen["most"], "evictions", sql,
                threshold=MIN_FOR_NOTHING, n=seen["num_steps"],
            ),
            measured("blocks whose release was put off", seen["num_deferred"], "blocks", sql),
        ),
        impact=Impact(
            cost=(f"{seen['num_tokens_lost'] or 0:,} computed tokens lost for nothing",),
            numbers=(("num_tokens_lost", seen["num_tokens_lost"]),),
        ),
        num_affected=seen["num_for_nothing"],
        chain=_chain(context, episode, seen, cause),
        actions=_actions(context),
    )  # fmt: skip


def _chain(
    context: Context, episode: Episode, seen: dict[str, Any], cause: Cause
) -> tuple[Link, ...]:
    """Returns the first eviction that freed nothing, and what all of them cost."""
    first = first_eviction(
        context.log,
        episode.inside,
        context.settings.num_usable_blocks,
        only="p.num_blocks_freed = 0 AND p.num_blocks_deferred > 0",
    )
    cost = f"{plural(seen['num_for_nothing'], 'eviction')} in {plural(seen['num_steps'], 'step')} "
    cost += f"freed nothing; {seen['num_tokens_lost'] or 0:,} computed tokens lost"
    return (
        Link(stage="cause", ts=None, sentence=cause.sentence),
        *first,
        Link(stage="impact", ts=episode.last_ts, sentence=cost),
    )


def _actions(context: Context) -> tuple[Action, ...]:
    upgrade = advise(
        "take a version whose evictions wait for deferred releases", trade_off="an upgrade"
    )
    if not context.settings.async_scheduling:
        return (upgrade,)
    off = advise(
        "until then decide each step after the one before",
        flag="--no-async-scheduling",
        old="async",
        new="off",
        trade_off="the device waits for the scheduler between steps",
        revert="--async-scheduling",
    )
    return upgrade, off


RULE = Rule(id=ID, version=2, prefix="pzr", page=__doc__ or "", decide=decide)
