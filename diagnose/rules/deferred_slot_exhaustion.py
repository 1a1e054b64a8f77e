"""deferred-slot-exhaustion: requests that are set aside fill the slots, and nobody gets in.

What it measures
----------------
Steps in which running requests and those set aside together reach `max_num_seqs`, nobody is
admitted and less than 60 % of the KV pool is used: for 30 seconds in a row, without a request that
ends. It says what they were set aside for.

Why it matters
--------------
A request that waits for an adapter, remote KV or a grammar takes a slot and gives nothing. Once all
slots are taken so, new requests wait behind them although the device and the cache are almost idle.

When it stays quiet
-------------------
Where requests end, the slots turn over: that is `seq-slot-limit`. A burst of grammars or loads that
comes back within seconds fills no slots for long.

What to do
----------
Restart to get out. Then bound how many requests may be set aside, give them a time-out at the
router, and look for why they do not come back: loads, adapters, grammars.

Source
------
Report of 29 running and 227 deferred requests on 256 slots, with the KV pool at 21 %. 60 %: the
playbook's starting value; 30 s: starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.causes.chain import links
from diagnose.finding import Cause, CauseKind, Finding, Impact, Link, RuleVerdict, Severity
from diagnose.reading import NS, read_row, read_rows
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out
from diagnose.stretches import StepStretch, read_stretches, span_of
from diagnose.words import count, duration, percent, plural

ID = "deferred-slot-exhaustion"

MAX_KV_USED = 0.6
"""Part of the KV pool below which blocks are not what is short. Source: playbook."""
MIN_STUCK_NS = 30 * NS
"""How long nobody may get in. Source: playbook, as for `admission-deadlock`."""

FULL = """
    num_running + num_skipped_waiting >= {slots} AND num_skipped_waiting > 0
    AND coalesce(num_admitted, 0) + coalesce(num_resumed, 0) = 0
    AND num_blocks_free_unhashed + num_blocks_free_cached > {free}
"""
SQL = """
SELECT min(step) AS first_step, max(num_waiting) AS waiting,
       arg_min(num_running, step) AS first_running,
       arg_min(num_skipped_waiting, step) AS first_aside,
       max(num_running) AS running, max(num_skipped_waiting) AS aside,
       max(num_running + num_skipped_waiting) AS taken,
       min(num_blocks_free_unhashed + num_blocks_free_cached) AS free,
       (SELECT count(*) FROM request_finishes WHERE {where}) AS num_ended
FROM steps WHERE {where}
"""
REASONS_SQL = """
SELECT skip_reason_name(reason) AS reason, count(DISTINCT request) AS num_requests,
       min(ts) AS since_ts
FROM request_events
WHERE engine = {engine} AND ts <= {end} AND kind = event_kind('skipped') AND reason IS NOT NULL
  AND request NOT IN (
      SELECT request FROM request_events
      WHERE engine = {engine} AND ts <= {start} AND request IS NOT NULL
        AND kind IN (event_kind('admitted'), event_kind('finished'))
  )
GROUP BY ALL ORDER BY num_requests DESC, reason
"""
CAUSES: dict[str, CauseKind] = {
    "grammar_compiling": "slow_grammars",
    "remote_kv_loading": "stuck_loads",
    "remote_kv_lookup_pending": "stuck_loads",
    "load_started": "stuck_loads",
    "lora_slots": "more_adapters",
}
"""Cause by what most are set aside for."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where requests set aside hold the slots."""
    slots, pool = context.settings.slots, context.settings.num_usable_blocks
    if slots is None or pool is None:
        return not_measured(ID, ("engines.max_num_seqs", "engines.num_usable_blocks"))
    lacks = lacking(context, ID, "steps", "num_skipped_waiting", "num_blocks_free_unhashed")
    if lacks is not None:
        return lacks
    condition = FULL.format(slots=slots, free=int((1 - MAX_KV_USED) * pool))
    stretches = read_stretches(context, condition)
    if not stretches or stretches[0].duration_ns < MIN_STUCK_NS:
        if not stretches:
            return healthy(ID, "set aside", "never filled the slots")
        return healthy(
            ID, "set aside", f"filled the slots for {duration(stretches[0].duration_ns)}"
        )
    seen = read_row(context.log, stretches[0].scope.fill(SQL))
    if seen["num_ended"]:
        return healthy(ID, "set aside", f"{plural(seen['num_ended'], 'request')} ended meanwhile")
    return _finding(context, stretches[0], seen, slots, pool)


def _chain(
    stuck: StepStretch,
    seen: dict[str, Any],
    reasons: list[dict[str, Any]],
    cause: Cause,
    slots: int,
) -> tuple[Link, ...]:
    """Returns since when requests are set aside, the step that let nobody in, and until when."""
    since = min((row["since_ts"] for row in reasons), default=None)
    first = f"step {seen['first_step']:,}: {seen['first_running']:,} running and "
    first += f"{seen['first_aside']:,} set aside took all {slots:,} slots; nobody was admitted"
    left = f"{plural(seen['waiting'], 'request')} waited, and for {duration(stuck.duration_ns)} "
    left += "nobody got in and nobody ended"
    return links(cause, since, first, stuck.opened_ts, left, stuck.until_ts)


def _finding(
    context: Context, stuck: StepStretch, seen: dict[str, Any], slots: int, pool: int
) -> Finding:
    sql, lasted = stuck.scope.fill(SQL), duration(stuck.duration_ns)
    reasons = read_rows(context.log, stuck.scope.fill(REASONS_SQL))
    told = ", ".join(f"{row['num_requests']:,} {row['reason']}" for row in reasons[:3])
    used = 1 - seen["free"] / pool
    cause = Cause(
        kind=CAUSES.get(reasons[0]["reason"], "undetermined") if reasons else "undetermined",
        sentence=f"set aside: {told or 'the reason is not recorded'}",
    )
    return finding(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(context, stuck),
        sentence=f"{seen['aside']:,} requests set aside ({told or 'reason not recorded'}) and "
        f"{seen['running']:,} running ones fill the {slots:,} slots; nobody got in for {lasted}, "
        f"{percent(used)} of the KV pool was used",
        symptom=f"{seen['taken']:,} of {slots:,} slots taken, no request ended in {lasted}",
        cause=cause,
        confidence=("high", "slots, reasons and free blocks of each step are recorded"),
        rejected=ruled_out(("slot limit", "no request ended"), ("KV shortage", percent(used))),
        evidence=(
            measured(
                "running and set aside", seen["taken"], "requests", sql, threshold=slots,
                n=stuck.num_steps,
            ),
            measured("time in which nobody got in", stuck.duration_ns, "ns", sql,
                     threshold=MIN_STUCK_NS, n=stuck.num_steps),
            measured("KV pool in use", used, "ratio", sql, threshold=MAX_KV_USED),
        ),
        impact=Impact(
            cost=(f"{plural(seen['waiting'], 'request')} waited for {lasted}",),
            numbers=(("num_set_aside", seen["aside"]), ("stuck_ns", stuck.duration_ns)),
        ),
        num_affected=seen["waiting"],
        chain=_chain(stuck, seen, reasons, cause, slots),
        actions=(
            advise(
                f"see why {count(seen['aside'])} requests do not come back, give them a time-out, "
                "and bound how many may be set aside; restart to get out",
                trade_off="requests in the engine are lost",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=3,
    prefix="dse",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("connector-parked-deadlock",),
)
