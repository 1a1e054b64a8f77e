"""kv-block-leak: KV blocks fill up while fewer and fewer requests run.

What it measures
----------------
Steps in which running and waiting requests together hold less than half of the KV blocks that are
not free, or in which a tenth of the pool is held by nobody at all, with a tenth of the pool or more
in use: for two minutes in a row. It says who holds the rest: requests that have ended, releases
that wait, loads that were given up, or nobody. An engine does not add up what its running requests
hold, so they are not believed to hold more than their lengths take.

Why it matters
--------------
Blocks are held by requests that do not run: loads that never end, transfers nobody fetched, a lost
release. The pool shrinks for everybody else until nobody is admitted.

When it stays quiet
-------------------
Cached blocks that nobody uses count as free. A request that is larger than the pool explains it:
`request-exceeds-kv-capacity`; so does a stage of a connector that does not end, which has a rule of
its own. Blocks that a transfer reads for a moment after a request has ended come back.

What to do
----------
Drain the engine and watch whether the gauge falls to zero. Look for failed or expired transfers,
set abort and lease times, upgrade the connector, restart.

Source
------
Reports of a decode engine whose remote loads never timed out, and of a prefill engine whose aborted
requests kept their blocks. One half, 0.3 and two minutes: the playbook's starting values; that it
is a trend without a step back in scrapes is ours.
"""

from __future__ import annotations

import math
from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.held_blocks import with_most_held
from diagnose.reading import NS, read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out
from diagnose.stretches import StepStretch, read_stretches, span_of
from diagnose.words import count, duration, percent

ID = "kv-block-leak"

MAX_HELD_SHARE = 0.5
"""Blocks of running and waiting requests against those in use. Source: playbook."""
MIN_USED = 0.1
"""Part of the pool that has to be in use. Starting value."""
MIN_LOST = 0.1
"""Part of the pool that is held by nobody at all. Starting value."""
MIN_LEAK_NS = 120 * NS
"""How long it has to be so. Source: playbook."""

USED = "({pool}::BIGINT - num_blocks_free_unhashed - num_blocks_free_cached)"
HELD = "(most_held + num_blocks_waiting)"
"""Blocks of running and waiting requests, at most."""
LOST = """({used} - {held} - num_blocks_finished - num_blocks_deferred_free
        - coalesce(num_blocks_given_up, 0))"""
"""Blocks of nobody at all. Only our engine tells given-up loads; others count them as ended."""
LEAKS = """
    {used} >= {least} AND ({held} < {share} * {used} OR {lost} >= {least_lost})
"""
SAMPLED_NS = 30 * NS
"""Steps so far apart are looked at first: no shorter than this is a leak between two of them."""
STEPS = "SELECT * FROM steps WHERE engine = {engine} AND ts BETWEEN {start} AND {end}"
SAMPLES = """
SELECT * FROM steps WHERE engine = {engine} AND step IN (
    SELECT min(step) FROM steps WHERE {where} GROUP BY ts // {sampled}
) AND {where}
"""
SUSPECTS_SQL = """
WITH sampled AS (SELECT ts, {condition} AS leaks FROM ({rows})),
runs AS (
    SELECT *, count(*) FILTER (leaks IS NOT TRUE) OVER (ORDER BY ts) AS clean FROM sampled
)
SELECT min(ts) FILTER (leaks IS NOT TRUE) AS after_ts, max(ts) AS last_ts,
       (SELECT min(ts) FROM sampled WHERE ts > max(r.ts)) AS before_ts
FROM runs AS r GROUP BY clean HAVING bool_or(leaks) ORDER BY last_ts
"""
SQL = """
SELECT min(num_blocks_free_unhashed + num_blocks_free_cached) AS free,
       arg_max({held}, step) AS held,
       arg_max(num_blocks_finished, step) AS finished,
       arg_max(num_blocks_deferred_free, step) AS deferred,
       arg_max(num_blocks_given_up, step) AS given_up,
       arg_max(num_blocks_free_unhashed + num_blocks_free_cached, step) AS last_free,
       max(num_running) AS running
FROM ({rows})
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where blocks are held by nobody who runs or waits."""
    pool = context.settings.num_usable_blocks
    if pool is None:
        return not_measured(ID, ("engines.num_usable_blocks",))
    columns = ("num_blocks_running", "num_blocks_waiting", "num_blocks_free_unhashed")
    lacks = lacking(context, ID, "steps", *columns)
    if lacks is not None:
        return lacks
    leak = _longest(context, pool)
    if leak is None or leak.duration_ns < MIN_LEAK_NS:
        number = "none" if leak is None else f"for {duration(leak.duration_ns)} at most"
        return healthy(ID, "blocks held by nobody", number)
    return _finding(context, leak, pool)


def _longest(context: Context, pool: int) -> StepStretch | None:
    """Returns the longest leak; of those that are too short to be one maybe none.

    Steps are sampled first, and only where one could have lasted long enough all are looked at.
    """
    condition = _condition(pool)
    samples = SAMPLES.replace("{sampled}", str(SAMPLED_NS))
    sql = SUSPECTS_SQL.replace("{condition}", condition)
    suspects = context.rows(sql.replace("{rows}", with_most_held(samples, context.settings, pool)))
    found: list[StepStretch] = []
    for suspect in suspects:
        start = suspect["after_ts"] or context.scope.start_ts
        end = suspect["before_ts"] or context.scope.end_ts
        if end - start >= MIN_LEAK_NS:
            steps = f"{STEPS} AND ts BETWEEN {start} AND {end}"
            rows = with_most_held(steps, context.settings, pool)
            found += read_stretches(context, condition, f"({rows})")
    return max(found, key=lambda leak: leak.duration_ns, default=None)


def _condition(pool: int) -> str:
    used = USED.format(pool=pool)
    return LEAKS.format(
        used=used,
        held=HELD,
        lost=LOST.format(used=used, held=HELD),
        share=MAX_HELD_SHARE,
        least=max(int(MIN_USED * pool), 1),
        least_lost=max(math.ceil(MIN_LOST * pool), 1),
    )


def _finding(context: Context, leak: StepStretch, pool: int) -> Finding:
    rows = with_most_held(STEPS, context.settings, pool)
    sql = leak.scope.fill(SQL.replace("{held}", HELD).replace("{rows}", rows))
    seen: dict[str, Any] = read_row(context.log, sql)
    used = pool - seen["last_free"]
    others, lasted = used - seen["held"], duration(leak.duration_ns)
    lost = max(others - _accounted(seen), 0)
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(context, leak),
        sentence=f"{others:,} of {pool:,} KV blocks are held by nobody who runs or waits, for "
        f"{lasted}: {_holders(seen, others)}",
        symptom=f"{used:,} blocks in use, {count(seen['held'])} of them by requests in the engine",
        cause=Cause(
            kind="peer" if seen["finished"] or seen["given_up"] else "code",
            sentence=f"held blocks: {_holders(seen, others)}",
        ),
        confidence=("high", "who holds the blocks of each step is recorded"),
        rejected=ruled_out(("cached blocks", "they count as free")),
        evidence=(
            measured(
                "blocks of running and waiting requests against those in use",
                seen["held"] / max(used, 1), "ratio", sql, threshold=MAX_HELD_SHARE,
                n=leak.num_steps,
            ),
            measured("time", leak.duration_ns, "ns", sql, threshold=MIN_LEAK_NS, n=leak.num_steps),
            measured("blocks that nobody can use", others, "blocks", sql),
            measured(
                "blocks held by nobody at all, against the pool", lost / pool, "ratio", sql,
                threshold=MIN_LOST, n=leak.num_steps,
            ),
        ),
        impact=Impact(
            cost=(f"{percent(others / pool)} of the KV pool is lost",),
            numbers=(("num_blocks_lost", others), ("lasted_ns", leak.duration_ns)),
        ),
        actions=(
            advise(
                "look at the transfers that still hold them; set lease and time-outs, restart to "
                "get the blocks back",
                trade_off="requests in the engine are lost",
            ),
        ),
    )  # fmt: skip


def _known(seen: dict[str, Any]) -> dict[str, int]:
    return {
        "requests that have ended": seen["finished"] or 0,
        "releases that wait for a step": seen["deferred"] or 0,
        "loads that were given up": seen["given_up"] or 0,
    }


def _accounted(seen: dict[str, Any]) -> int:
    return sum(_known(seen).values())


def _holders(seen: dict[str, Any], others: int) -> str:
    told = [f"{number:,} by {who}" for who, number in _known(seen).items() if number]
    rest = others - _accounted(seen)
    if rest > 0:
        told.append(f"{rest:,} by nobody")
    return ", ".join(told) or "nobody knows"


RULE = Rule(
    id=ID,
    version=4,
    prefix="kbl",
    page=__doc__ or "",
    decide=decide,
    silenced_by=(
        "request-exceeds-kv-capacity",
        "remote-kv-wait-stuck",
        "connector-save-stuck",
        "connector-ack-stuck",
    ),
)
