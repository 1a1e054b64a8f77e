"""How it came about, in moments: what changed, what failed first, whom it hurt.

The first failure is told with its own arithmetic, as the step recorded it: who needed how many
blocks, how many were free, who paid. A finding that does not know these moments has no chain.
"""

from __future__ import annotations

from diagnose.finding import Cause, Link
from diagnose.reading import NS, QueryLog, Scope, read_rows
from diagnose.storm import Storm
from diagnose.words import count, duration, plural

FIRST_SQL = """
SELECT p.step, p.ts, p.request, p.beneficiary,
       p.num_blocks_needed::BIGINT AS needed, p.num_blocks_free_before::BIGINT AS free,
       p.num_blocks_freed::BIGINT AS freed, p.num_computed_tokens_lost::BIGINT AS lost,
       s.num_running, s.num_waiting
FROM request_events p LEFT JOIN steps s ON s.engine = p.engine AND s.step = p.step
WHERE p.engine = {engine} AND p.ts BETWEEN {start} AND {end} AND p.kind = event_kind('preempted')
  AND ({only})
ORDER BY p.seq LIMIT 1
"""
ANY_EVICTION = "true"


def chain_of(storm: Storm) -> tuple[Link, ...]:
    """Returns cause, first preemption and impact of an episode, with their times."""
    return (_cause(storm), *_first_failure(storm), _impact(storm))


def _cause(storm: Storm) -> Link:
    explanation = storm.explanation
    change, started = explanation.main_change, storm.settings.started_ts
    if change is not None:
        return Link(stage="cause", ts=change.began_ts, sentence=explanation.cause.sentence)
    ts = started if explanation.cause.kind == "setting" else None
    return Link(stage="cause", ts=ts, sentence=explanation.cause.sentence)


def _first_failure(storm: Storm) -> tuple[Link, ...]:
    change, episode = storm.explanation.main_change, storm.episode
    began = episode.opened_ts if change is None else change.began_ts or episode.opened_ts
    scope = Scope(storm.settings.engine, max(began, episode.opened_ts), episode.last_ts)
    return first_eviction(storm.log, scope, storm.settings.num_usable_blocks)


def first_eviction(
    log: QueryLog, scope: Scope, pool: int | None, only: str = ANY_EVICTION
) -> tuple[Link, ...]:
    """Returns the first eviction of a stretch with its arithmetic; nothing where there is none.

    Args:
        log: what is asked.
        scope: the engine and the stretch.
        pool: the engine's usable blocks.
        only: an SQL condition over the evictions, `p`.
    """
    rows = read_rows(log, scope.fill(FIRST_SQL.replace("{only}", only)))
    if not rows:
        return ()
    row = rows[0]
    of_pool = "" if pool is None else f" of {pool:,}"
    who = "a request" if row["beneficiary"] is None else f"request {row['beneficiary']}"
    said = f"step {row['step']:,}"
    if row["num_running"] is not None:
        said += f", {plural(row['num_running'], 'request')} running"
    said += f": {who} needed {_blocks(row['needed'])}, {count(row['free'])}{of_pool} were free; "
    victim = "it" if row["request"] == row["beneficiary"] else f"request {row['request']}"
    said += f"{victim} was evicted: {_blocks(row['freed'])} freed, "
    said += f"{count(row['lost'])} computed tokens lost"
    return (Link(stage="first_failure", ts=row["ts"], sentence=said),)


def _blocks(number: int | None) -> str:
    return "blocks" if number is None else plural(number, "block")


def _impact(storm: Storm) -> Link:
    account, pauses, episode = storm.account, storm.pauses, storm.episode
    took = duration(episode.last_ts - episode.opened_ts)
    said = f"{plural(account.num_rows, 'preemption')} within {took}; "
    said += f"{account.num_affected:,} of {plural(account.num_requests, 'request')} evicted"
    if account.evicted_ns is not None:
        said += f", out for {account.evicted_ns / NS:,.1f} s in all"
    if pauses.evicted_p95_ns is not None:
        said += f"; longest pause p95 {duration(pauses.evicted_p95_ns)}"
        if pauses.calm_p95_ns is not None:
            said += f", {duration(pauses.calm_p95_ns)} for the others"
    return Link(stage="impact", ts=episode.last_ts, sentence=said)


def links(
    cause: Cause, cause_ts: int | None, failure: str, failure_ts: int, impact: str, impact_ts: int
) -> tuple[Link, ...]:
    """Returns the chain of what stands still: since when why, where first, and until when."""
    return (
        Link(stage="cause", ts=cause_ts, sentence=cause.sentence),
        Link(stage="first_failure", ts=failure_ts, sentence=failure),
        Link(stage="impact", ts=impact_ts, sentence=impact),
    )
