"""kv-block-leak: KV blocks fill up while fewer and fewer requests run.

What it measures
----------------
Steps in which running and waiting requests together hold less than half of the KV blocks that are
not free, with a tenth of the pool or more in use: for two minutes in a row. It says who holds the
rest: requests that have ended, releases that wait, loads that were given up, or nobody. Running
requests are not believed to hold more than so many of the longest request in the window would.

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

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
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
MIN_LEAK_NS = 120 * NS
"""How long it has to be so. Source: playbook."""

HELD = "least(num_blocks_running, num_running * {longest}) + num_blocks_waiting"
"""Blocks of running and waiting requests. What nobody else has counts as the running ones' (an
engine does not add it up), but no more than so many of the longest request can hold."""
LEAKS = """
    {pool}::BIGINT - num_blocks_free_unhashed - num_blocks_free_cached >= {least}
    AND {held} < {share} * ({pool}::BIGINT - num_blocks_free_unhashed - num_blocks_free_cached)
"""
LONGEST_SQL = """
SELECT max({{blocks}})::BIGINT AS longest FROM requests
WHERE engine = {engine} AND ts <= {end} AND coalesce(finished_ts, {end}) >= {start}
"""
SQL = """
SELECT min(num_blocks_free_unhashed + num_blocks_free_cached) AS free,
       arg_max({{held}}, step) AS held,
       arg_max(num_blocks_finished, step) AS finished,
       arg_max(num_blocks_deferred_free, step) AS deferred,
       arg_max(num_blocks_given_up, step) AS given_up,
       arg_max(num_blocks_free_unhashed + num_blocks_free_cached, step) AS last_free,
       max(num_running) AS running
FROM steps WHERE {where}
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
    held = HELD.format(longest=_longest(context, pool))
    least = max(int(MIN_USED * pool), 1)
    condition = LEAKS.format(pool=pool, least=least, share=MAX_HELD_SHARE, held=held)
    stretches = read_stretches(context, condition)
    if not stretches or stretches[0].duration_ns < MIN_LEAK_NS:
        if not stretches:
            return healthy(ID, "blocks held by nobody", "none")
        longest = duration(stretches[0].duration_ns)
        return healthy(ID, "blocks held by nobody", f"for {longest} at most")
    return _finding(context, stretches[0], pool, held)


def _longest(context: Context, pool: int) -> int:
    """Returns the most KV blocks that a request of the window can hold; the pool if unknown."""
    settings = context.settings
    if not settings.kv_groups:
        return pool
    limit = settings.max_model_len or pool * (settings.block_size or 1)
    ahead = 1 + (settings.num_speculative_tokens or 0)
    tokens = f"least(num_prompt_tokens + coalesce(max_tokens, {limit}), {limit}) + {ahead}"
    sql = LONGEST_SQL.replace("{{blocks}}", settings.blocks_sql(f"({tokens})"))
    return int(context.row(sql)["longest"] or pool)


def _finding(context: Context, leak: StepStretch, pool: int, held: str) -> Finding:
    sql = leak.scope.fill(SQL.replace("{{held}}", held))
    seen: dict[str, Any] = read_row(context.log, sql)
    used = pool - seen["last_free"]
    lost, lasted = used - seen["held"], duration(leak.duration_ns)
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(context, leak),
        sentence=f"{lost:,} of {pool:,} KV blocks are held by nobody who runs or waits, for "
        f"{lasted}: {_holders(seen, lost)}",
        symptom=f"{used:,} blocks in use, {count(seen['held'])} of them by requests in the engine",
        cause=Cause(
            kind="peer" if seen["finished"] or seen["given_up"] else "code",
            sentence=f"held blocks: {_holders(seen, lost)}",
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
            measured("blocks that nobody can use", lost, "blocks", sql),
        ),
        impact=Impact(
            cost=(f"{percent(lost / pool)} of the KV pool is lost",),
            numbers=(("num_blocks_lost", lost), ("lasted_ns", leak.duration_ns)),
        ),
        actions=(
            advise(
                "look at the transfers that still hold them; set lease and time-outs, restart to "
                "get the blocks back",
                trade_off="requests in the engine are lost",
            ),
        ),
    )  # fmt: skip


def _holders(seen: dict[str, Any], lost: int) -> str:
    known = {
        "requests that have ended": seen["finished"] or 0,
        "releases that wait for a step": seen["deferred"] or 0,
        "loads that were given up": seen["given_up"] or 0,
    }
    told = [f"{number:,} by {who}" for who, number in known.items() if number]
    rest = lost - sum(known.values())
    if rest > 0:
        told.append(f"{rest:,} by nobody")
    return ", ".join(told) or "nobody knows"


RULE = Rule(
    id=ID,
    version=3,
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
