"""queueing-with-kv-full: the KV pool is full and the queue grows with it.

What it measures
----------------
Steps whose admission ended for want of KV blocks while the pool was 90 % used or more: at least
half of the steps with a queue, 50 or more of them. It says which came first, the full pool or the
queue, and whether the same request stood at the head all the time.

Why it matters
--------------
Full and queued look the same whether the engine is simply at its capacity or one request blocks all
others. The first needs room or less load, the second needs that request looked at.

When it stays quiet
-------------------
Where requests are evicted, the preemption rules say it. A full pool without a queue is well used:
`guard-kv-high-healthy`. A queue with free blocks is `seq-slot-limit` or `kv-head-of-line`.

What to do
----------
At capacity: more blocks, fewer tokens kept per request, another replica. With a stuck head: see why
it is not admitted (`stepscope step N`).

Source
------
The scheduler's own document, chapter on production. 50 steps, one half and 30 s: starting values;
90 % was tuned on the fault matrix.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.capacity import measure_capacity
from diagnose.causes.traffic import read_traffic
from diagnose.episodes import Episode, worst_episode
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import NS, read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out
from diagnose.words import count, duration, percent, plural

ID = "queueing-with-kv-full"

MIN_KV_USED = 0.9
"""Part of the pool in use. Source: tuned on seeds 0-5 of benchmarks/faults.py: what the head of a
full pool leaves free is up to 0.06 of it; with more than 0.1 it is `kv-head-of-line`."""
MIN_STEPS = 50
"""Steps that want of blocks ended. Starting value."""
MIN_SHARE = 0.5
"""Their share of the steps with a queue. Starting value."""
STUCK_HEAD_NS = 30 * NS
"""One request at the head for so long is stuck. Source: playbook, as for `admission-deadlock`."""

FULL = """
    s.num_waiting > 0 AND s.num_blocks_free_unhashed + s.num_blocks_free_cached
        <= {free_limit} AND stop_reason_name(s.stop_reason)
        IN ('kv_blocks_chunk', 'kv_blocks_whole_prompt', 'kv_watermark', 'preempted_this_step')
"""
MOMENTS_SQL = f"SELECT ts FROM steps AS s WHERE engine = {{engine}} AND ts <= {{end}} AND {FULL}"
SQL = f"""
SELECT coalesce(sum(num_repeats) FILTER ({FULL}), 0)::BIGINT AS num_full,
       coalesce(sum(num_repeats) FILTER (num_waiting > 0), 0)::BIGINT AS num_queued,
       max(num_waiting) AS most_waiting,
       count(DISTINCT head_request) FILTER ({FULL}) AS num_heads,
       mode(head_request) FILTER ({FULL}) AS head,
       max(updated_ts) FILTER ({FULL}) - min(ts) FILTER ({FULL}) AS lasted_ns,
       min(ts) FILTER (num_waiting > 0) AS queue_ts,
       min(ts) FILTER (num_blocks_free_unhashed + num_blocks_free_cached <= {{free_limit}})
           AS full_ts
FROM steps AS s WHERE {{where}}
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a full pool makes requests queue."""
    pool = context.settings.num_usable_blocks
    if pool is None:
        return not_measured(ID, ("engines.num_usable_blocks",))
    lacks = lacking(context, ID, "steps", "stop_reason", "num_blocks_free_unhashed")
    if lacks is not None:
        return lacks
    limit = str(int((1 - MIN_KV_USED) * pool))
    episode = worst_episode(context, MOMENTS_SQL.replace("{free_limit}", limit))
    if episode is None:
        return healthy(ID, "queue for blocks", "nobody waited at a full pool")
    sql = episode.stretch.fill(SQL.replace("{free_limit}", limit))
    seen = read_row(context.log, sql) | {"sql": sql}
    share = seen["num_full"] / max(seen["num_queued"], 1)
    if seen["num_full"] < MIN_STEPS or share < MIN_SHARE:
        number = f"a full pool ended {plural(seen['num_full'], 'step')} with a queue"
        return healthy(ID, "queue for blocks", number)
    return _finding(context, episode, seen, share)


def _finding(context: Context, episode: Episode, seen: dict[str, Any], share: float) -> Finding:
    stuck = seen["num_heads"] == 1 and (seen["lasted_ns"] or 0) >= STUCK_HEAD_NS
    waiting = plural(seen["most_waiting"], "request")
    return finding(
        context,
        RULE,
        severity=Severity.high if stuck else Severity.medium,
        span=episode.span,
        sentence=f"The KV pool was {percent(MIN_KV_USED)} used or more while up to {waiting} "
        f"queued; {_order(seen)}, and {_head(seen, stuck)}",
        symptom=f"want of blocks ended {percent(share)} of {seen['num_queued']:,} steps with a "
        "queue",
        cause=Cause(
            kind="undetermined" if stuck else "setting",
            sentence=f"undetermined: request {count(seen['head'])} stays at the head"
            if stuck
            else f"capacity: {_capacity(context, episode)}",
        ),
        confidence=("high" if not stuck else "medium", "head, free blocks and queue are recorded"),
        rejected=ruled_out(
            ("preemption", f"{context.accounting.num_from_kv:,} for want of blocks"),
            ("slots", f"want of blocks ended {percent(share)} of those steps"),
        ),
        evidence=(
            measured(
                "steps with a queue that want of blocks ended", share, "ratio", seen["sql"],
                threshold=MIN_SHARE, n=seen["num_queued"],
            ),
            measured("requests that stood at the head", seen["num_heads"], "requests", seen["sql"]),
            measured(
                "time from a full pool to a queue", _lag(seen), "ns", seen["sql"],
                provenance="derived",
            ),
        ),
        impact=Impact(
            cost=(f"up to {waiting} queued",),
            numbers=(("max_waiting", seen["most_waiting"]), ("lasted_ns", seen["lasted_ns"])),
        ),
        num_affected=seen["most_waiting"],
        actions=_actions(seen, stuck),
    )  # fmt: skip


def _lag(seen: dict[str, Any]) -> int | None:
    if seen["queue_ts"] is None or seen["full_ts"] is None:
        return None
    return int(seen["queue_ts"] - seen["full_ts"])


def _order(seen: dict[str, Any]) -> str:
    lag = _lag(seen)
    if lag is None:
        return "which came first is not recorded"
    if lag > 0:
        return f"the pool was full {duration(lag)} before anybody queued"
    return f"the queue stood {duration(-lag)} before the pool was full" if lag else "both at once"


def _head(seen: dict[str, Any], stuck: bool) -> str:
    if stuck:
        return f"request {count(seen['head'])} stood at the head for {duration(seen['lasted_ns'])}"
    return f"{plural(seen['num_heads'], 'request')} passed its head: it moves"


def _capacity(context: Context, episode: Episode) -> str:
    traffic = read_traffic(context.log, episode.inside, context.settings)
    capacity = measure_capacity(
        traffic, context.settings, episode.inside.start_ts, episode.inside.end_ts
    )
    return (
        f"the pool of {count(capacity.pool)} blocks holds {count(capacity.holds)} "
        f"{capacity.these}; {capacity.peak_in_flight:,} were in the engine"
    )


def _actions(seen: dict[str, Any], stuck: bool) -> tuple[Action, ...]:
    if stuck:
        look = f"see why request {count(seen['head'])} is not admitted: stepscope step N"
        return (advise(look, applies="live", trade_off="none"),)
    return (
        advise(
            "add a replica or KV memory, or send less: the pool is at its capacity",
            applies="client",
            trade_off="more hardware, or less load",
        ),
    )


RULE = Rule(
    id=ID,
    version=2,
    prefix="qkf",
    page=__doc__ or "",
    decide=decide,
    silenced_by=(
        "kv-preemption-thrash",
        "kv-preemption-pressure",
        "request-exceeds-kv-capacity",
        "kv-head-of-line",
        "kv-block-leak",
        "admission-deadlock",
        "connector-parked-deadlock",
    ),
)
