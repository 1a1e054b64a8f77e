"""connector-parked-deadlock: requests whose KV has come hold the blocks that they lack.

What it measures
----------------
Steps in which nobody runs, loads have been received, and the head of the queue needs more blocks
than are free although it would fit the pool: for 30 seconds or longer.

Why it matters
--------------
Each request that was loaded holds a part of the pool and needs a little more to go on. None can
take it, none gives back, and nothing is evicted because nothing runs.

When it stays quiet
-------------------
Without a connector, or where nothing has been received, it is `admission-deadlock` or
`remote-kv-wait-stuck`. A head larger than the pool is `request-exceeds-kv-capacity`.

What to do
----------
Bound how many loads may be under way, let fewer requests in, and take a version that reserves what
a load will still need.

Source
------
Three reports of engines with KV offload or a producer whose loaded requests filled the pool. 30 s:
the playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.causes.chain import links
from diagnose.finding import Cause, Finding, Impact, Link, RuleVerdict, Severity
from diagnose.reading import NS, read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, ruled_out, unused
from diagnose.stretches import StepStretch, read_stretches, span_of
from diagnose.words import connector_name, count, duration, plural

ID = "connector-parked-deadlock"

MIN_PARKED_NS = 30 * NS
"""How long nothing may move. Source: playbook, as for `admission-deadlock`."""

PARKED = """
    num_running = 0 AND num_scheduled_tokens = 0 AND num_waiting > 0
    AND num_loaded_not_promoted > 0
    AND head_blocks_needed > num_blocks_free_unhashed + num_blocks_free_cached
"""
SQL = f"""
SELECT max(num_waiting) AS num_waiting, max(num_loaded_not_promoted) AS num_parked,
       max(num_blocks_waiting) AS num_held, max(head_blocks_needed) AS needed,
       max(num_blocks_free_unhashed + num_blocks_free_cached) AS free,
       arg_max(head_request, step) AS head, min(step) AS first_step,
       arg_min(head_blocks_needed, step) AS first_needed,
       arg_min(num_blocks_free_unhashed + num_blocks_free_cached, step) AS first_free,
       arg_min(num_blocks_waiting, step) AS first_held
FROM steps WHERE {{where}} AND {PARKED}
"""
LOADED_SQL = """
SELECT min(l.ts) AS since_ts FROM request_events AS l
WHERE l.engine = {engine} AND l.ts <= {end} AND l.kind = event_kind('load_finished')
  AND NOT EXISTS (
      FROM request_events AS a
      WHERE a.engine = {engine} AND a.request = l.request AND a.ts BETWEEN l.ts AND {end}
        AND a.kind IN (event_kind('admitted'), event_kind('resumed'), event_kind('finished'))
  )
"""
"""Since when KV is there that no request has gone on with."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where loaded requests block each other."""
    if context.settings.kv_connector is None:
        return unused(ID, "loaded requests", "no connector")
    lacks = lacking(context, ID, "steps", "num_loaded_not_promoted", "num_blocks_free_unhashed")
    if lacks is not None:
        return lacks
    stretches = read_stretches(context, PARKED)
    if not stretches or stretches[0].duration_ns < MIN_PARKED_NS:
        longest = duration(stretches[0].duration_ns) if stretches else "none"
        return healthy(ID, "loaded requests", f"longest standstill {longest}")
    return _finding(context, stretches[0])


def _finding(context: Context, parked: StepStretch) -> Finding:
    sql = parked.scope.fill(SQL)
    seen: dict[str, Any] = read_row(context.log, sql)
    lasted, pool = duration(parked.duration_ns), context.settings.num_usable_blocks
    connector = connector_name(context.settings.kv_connector)
    cause = Cause(
        kind="stuck_loads",
        sentence=f"loads that block each other: {seen['num_parked']:,} were received through "
        f"{connector} and none was admitted",
    )
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(context, parked),
        sentence=f"{plural(seen['num_parked'], 'request')} whose KV has been loaded hold "
        f"{count(seen['num_held'])} of {count(pool)} blocks and cannot go on: the next needs "
        f"{count(seen['needed'])}, {count(seen['free'])} are free; nothing ran for {lasted}",
        symptom=f"nothing ran for {lasted} with {plural(seen['num_waiting'], 'request')} waiting",
        cause=cause,
        confidence=("high", "who holds the blocks and what the head needs are recorded"),
        rejected=ruled_out(
            ("too large for the pool", f"{count(seen['needed'])} of {count(pool)} blocks"),
            ("loads that do not come", f"{seen['num_parked']:,} have come"),
        ),
        evidence=(
            measured(
                "time without a running request", parked.duration_ns, "ns", sql,
                threshold=MIN_PARKED_NS, n=parked.num_steps,
            ),
            measured("loaded requests that are not running", seen["num_parked"], "requests", sql),
            measured("blocks that waiting requests hold", seen["num_held"], "blocks", sql),
        ),
        impact=Impact(
            cost=(f"{plural(seen['num_waiting'], 'request')} got nothing for {lasted}",),
            numbers=(("stuck_ns", parked.duration_ns), ("num_waiting", seen["num_waiting"])),
        ),
        num_affected=seen["num_waiting"],
        chain=_chain(context, parked, seen, cause),
        actions=(
            advise(
                "bound the loads under way, or let fewer requests in; restart to free those that "
                "hold each other",
                trade_off="requests in the engine are lost, fewer run at once",
            ),
        ),
    )  # fmt: skip


def _chain(
    context: Context, parked: StepStretch, seen: dict[str, Any], cause: Cause
) -> tuple[Link, ...]:
    """Returns since when loaded KV lies there, the step in which nothing ran, and until when."""
    since = read_row(context.log, parked.scope.fill(LOADED_SQL))["since_ts"]
    first = f"step {seen['first_step']:,}: nothing ran; the head needed "
    first += f"{plural(seen['first_needed'], 'block')}, {count(seen['first_free'])} were free, "
    first += f"{count(seen['first_held'])} held by waiting requests"
    left = f"{plural(seen['num_waiting'], 'request')} had got nothing for "
    left += duration(parked.duration_ns)
    return links(cause, since, first, parked.opened_ts, left, parked.until_ts)


RULE = Rule(
    id=ID,
    version=2,
    prefix="cpd",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("request-exceeds-kv-capacity",),
)
