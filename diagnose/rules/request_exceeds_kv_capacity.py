"""request-exceeds-kv-capacity: a request that the KV pool can never hold.

What it measures
----------------
Plain arithmetic, against the blocks that can be handed out (the pool without its null block). A
request is too large when its prompt alone fills more blocks, when it stood at the head of the queue
and needed more, or when it ran alone, filled the pool and evicted itself for one block more.

Why it matters
--------------
The scheduler does not refuse it: it waits for ever, and under first come, first served everybody
behind it waits too. No error is written, and health checks stay green.

When it stays quiet
-------------------
A request refused at the door did no harm. Needs that contain the watermark are judged without it.
A prompt that fits with a `max_tokens` that might not is no fault until it happens: most answers end
before their limit.

What to do
----------
Set `max_model_len` to what the pool holds, refuse such requests in front of the engine, or give the
pool more blocks.

Source
------
Reports of prompts of 63 blocks on a pool of 49, of an off-by-one for the null block, and of a
request that outgrows the pool while decoding. No threshold: it fits or it does not.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import VERIFY
from diagnose.facts import EngineSettings
from diagnose.finding import (
    Action,
    Affected,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Healthy,
    Impact,
    NotMeasured,
    Rejected,
    RuleVerdict,
    Severity,
    Span,
)
from diagnose.rule import Context, Earlier, Rule
from diagnose.words import connector_name, count, plural

ID = "request-exceeds-kv-capacity"

SQL = """
WITH heads AS (
    SELECT head_request AS request, max(head_blocks_needed)::BIGINT AS head_blocks,
           min(ts) AS head_ts, sum(num_repeats)::BIGINT AS num_head_steps
    FROM admission_stops
    WHERE {{where}} AND head_blocks_needed > {limit} GROUP BY head_request
), loops AS (
    SELECT request, max(num_computed_tokens_lost)::BIGINT AS most_tokens, min(ts) AS loop_ts,
           count(*) AS times
    FROM preemptions
    WHERE {{where}} AND request = beneficiary AND {lost_blocks} > {pool}
    GROUP BY request
)
SELECT r.request, r.request_id, r.ts, r.finished_ts, r.num_prompt_tokens::BIGINT AS prompt_tokens,
       greatest(
           {prompt_blocks}, coalesce(h.head_blocks, 0), {loop_blocks}
       ) AS blocks_needed,
       h.num_head_steps, l.times, coalesce(h.head_ts, l.loop_ts, r.ts) AS opened_ts
FROM requests AS r LEFT JOIN heads AS h USING (request) LEFT JOIN loops AS l USING (request)
WHERE r.engine = {{engine}} AND r.ts <= {{end}} AND coalesce(r.finished_ts, {{end}}) >= {{start}}
  AND r.finish_reason IS DISTINCT FROM 'refused'
  AND (h.request IS NOT NULL OR l.request IS NOT NULL
       OR {prompt_blocks} > {pool})
ORDER BY blocks_needed DESC, r.request
"""

LARGEST_SQL = """
SELECT max(num_prompt_tokens + CASE WHEN finished_ts <= {end} THEN num_output_tokens ELSE 0 END)
           ::BIGINT AS tokens,
       count(*) FILTER (finish_reason = 'refused') AS num_refused
FROM requests WHERE engine = {engine} AND ts <= {end} AND coalesce(finished_ts, {end}) >= {start}
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding for requests that do not fit even an empty pool."""
    settings = context.settings
    pool = settings.num_usable_blocks
    if pool is None or not settings.kv_groups:
        missing = ("engines.num_usable_blocks", "engines.block_size")
        return NotMeasured(rule=ID, missing=missing, why="the pool's size is not recorded")
    sql = _statement(settings, pool)
    found = context.rows(sql)
    if found:
        return _finding(context, found, pool, context.scope.fill(sql))
    largest = context.row(LARGEST_SQL)
    number = f"largest {count(settings.blocks_of(largest['tokens'] or 0))} of {pool:,} blocks"
    if largest["num_refused"]:
        number += f", {largest['num_refused']:,} refused"
    return Healthy(rule=ID, name="oversized", number=number)


def _statement(settings: EngineSettings, pool: int) -> str:
    watermark = int((settings.watermark or 0.0) * (settings.num_gpu_blocks or 0))
    ahead = 1 + (settings.num_speculative_tokens or 0)
    return SQL.format(
        limit=pool + watermark,
        pool=pool,
        lost_blocks=settings.blocks_sql(f"num_computed_tokens_lost + {ahead}"),
        prompt_blocks=settings.blocks_sql("num_prompt_tokens"),
        loop_blocks=settings.blocks_sql(f"coalesce(l.most_tokens, 0) + {ahead}"),
    )


def _finding(context: Context, found: list[dict[str, Any]], pool: int, sql: str) -> Finding:
    worst = found[0]
    ended = [
        row["finished_ts"] for row in found if (row["finished_ts"] or 1 << 63) <= _end(context)
    ]
    span = Span(
        opened_ts=min(row["opened_ts"] for row in found),
        cleared_ts=max(ended) if len(ended) == len(found) else None,
    )
    need, request = worst["blocks_needed"], worst["request"]
    behind = max((context.steps.max_waiting or 0) - 1, 0)
    return Finding(
        id=RULE.new_id(context),
        rule=ID,
        rule_version=RULE.version,
        severity=Severity.critical,
        confidence=Confidence(level="high", why="arithmetic on recorded blocks"),
        span=span,
        engine=context.scope.engine,
        sentence=f"Request {request} needs {need:,} KV blocks and the pool has {pool:,}: "
        "it can never run.",
        symptom=f"{plural(len(found), 'request')} larger than the pool, up to {behind:,} behind",
        cause=Cause(
            kind="oversized_request",
            sentence=f"oversized request: {request} needs {need:,} of {pool:,} blocks",
        ),
        rejected=_rejected(context),
        evidence=_evidence(worst, pool, len(found), sql),
        impact=Impact(
            cost=(f"{plural(len(found), 'request')} cannot run; up to {behind:,} wait behind",),
            numbers=(("num_oversized", len(found)), ("max_waiting_behind", behind)),
        ),
        affected=tuple(_affected(row) for row in found[:20]),
        num_affected=len(found),
        actions=_actions(context.settings, need, pool),
        data_quality=context.data_quality,
    )


def _end(context: Context) -> int:
    return context.scope.end_ts


def _rejected(context: Context) -> tuple[Rejected, ...]:
    held = context.steps.max_held_by_waiting
    return (
        Rejected(
            kind="stuck_loads",
            name="stuck loads",
            number=f"{connector_name(context.settings.kv_connector)}, {count(held)} held",
        ),
    )


def _evidence(worst: dict[str, Any], pool: int, num_found: int, sql: str) -> tuple[Evidence, ...]:
    return (
        Evidence(
            name=f"blocks that request {worst['request']} needs",
            value=worst["blocks_needed"],
            unit="blocks",
            threshold=pool,
            threshold_text=f"pool {pool:,}",
            n=num_found,
            provenance="derived",
            sql=sql,
        ),
        Evidence(
            name="steps that it ended as head of the queue",
            value=worst["num_head_steps"] or 0,
            unit="steps",
            n=num_found,
            sql=sql,
        ),
    )


def _affected(row: dict[str, Any]) -> Affected:
    return Affected(
        request=row["request"],
        request_id=row["request_id"],
        times=row["times"] or 0,
        num_tokens_lost=None,
        num_tokens_recomputed=None,
        evicted_ns=None,
    )


def _actions(settings: EngineSettings, need: int, pool: int) -> tuple[Action, ...]:
    actions = []
    longest, old = settings.max_model_len, settings.num_gpu_blocks
    fits = settings.pool_tokens
    if longest is not None and fits is not None and longest > fits:
        actions.append(
            Action(
                what="take no request that the pool cannot hold",
                flag="--max-model-len",
                old=str(longest),
                new=str(fits),
                applies="restart",
                trade_off="longer requests are refused at once",
                verify=VERIFY,
                revert=f"--max-model-len {longest}",
            )
        )
    if settings.allows_oversize:
        actions.append(
            Action(
                what="refuse such requests at the API",
                flag="--allow-oversize",
                old="on",
                new="off",
                applies="restart",
                trade_off="their clients get an error at once",
                verify=VERIFY,
                revert="--allow-oversize",
            )
        )
    if old is not None:
        new = old + need - pool
        actions.append(
            Action(
                what="give the pool room for it",
                flag="--num-gpu-blocks-override",
                old=str(old),
                new=str(new),
                applies="restart",
                trade_off=f"{new / old:.1f} x the KV memory; it has to be there",
                verify=VERIFY,
                revert=f"--num-gpu-blocks-override {old}",
            )
        )
    return tuple(actions)


RULE = Rule(id=ID, version=1, prefix="rkc", page=__doc__ or "", decide=decide)
