"""kv-pool-shrunk-by-reserve, from scrapes alone.

The pool in the labels of `cache_config_info`, of one process against the one before: less than 60 %
of the tokens, or of the blocks.
"""

from __future__ import annotations

from typing import Any

from diagnose.finding import (
    Action,
    Cause,
    Evidence,
    Finding,
    Healthy,
    Impact,
    RuleVerdict,
    Severity,
    Span,
)
from diagnose.rule import Context, Earlier
from diagnose.rules.kv_pool_shrunk_by_reserve import ID, MAX_RATIO, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_finding import facts_of, found, too_few
from diagnose.words import count, percent

SERIES = "vllm:cache_config_info"

SQL = """
WITH told AS (
    SELECT labels, min(ts) AS ts FROM samples
    WHERE {where} AND metric IN ('vllm:cache_config_info', 'ray_vllm_cache_config_info')
    GROUP BY labels
), pools AS (
    SELECT ts, try_cast(json_extract_string(labels, '$.num_gpu_blocks') AS BIGINT)
             * try_cast(json_extract_string(labels, '$.block_size') AS BIGINT) AS num_tokens
    FROM told
)
SELECT num_tokens, min(ts) AS first_ts FROM pools
WHERE num_tokens IS NOT NULL GROUP BY num_tokens ORDER BY first_ts
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a later process has a much smaller pool."""
    if (few := too_few(context, ID)) is not None:
        return few
    pools = context.rows(SQL)
    if not pools:
        return not_measured(ID, (f"{SERIES}{{num_gpu_blocks, block_size}}",))
    if len(pools) < 2:
        return Healthy(rule=ID, name="KV pool", number=f"{count(pools[0]['num_tokens'])} tokens")
    old, new = pools[-2], pools[-1]
    if new["num_tokens"] >= MAX_RATIO * old["num_tokens"]:
        number = f"{count(old['num_tokens'])} -> {count(new['num_tokens'])} tokens"
        return Healthy(rule=ID, name="KV pool", number=number)
    return _finding(context, old, new)


def _finding(context: Context, old: dict[str, Any], new: dict[str, Any]) -> Finding:
    before, after = old["num_tokens"], new["num_tokens"]
    return found(
        context,
        RULE,
        severity=Severity.medium,
        span=Span(opened_ts=new["first_ts"], cleared_ts=None),
        sentence=f"The KV pool holds {after:,} tokens since the last start, before it {before:,}",
        symptom=f"the KV pool shrank to {percent(after / before)}",
        cause=Cause(kind="smaller_pool", sentence=f"smaller pool: {before:,} -> {after:,} tokens"),
        confidence=("high", "the engine's own labels, of two processes"),
        rejected=ruled_out(("block leak", "the pool itself is smaller")),
        evidence=(
            Evidence(
                name="KV pool against the process before",
                value=after / before,
                unit="ratio",
                threshold=MAX_RATIO,
                n=facts_of(context).num_scrapes,
                sql=context.scope.fill(SQL),
            ),
        ),
        impact=Impact(
            cost=(f"room for {before - after:,} tokens fewer",),
            numbers=(("num_tokens_before", before), ("num_tokens_after", after)),
        ),
        actions=(_equivalent(),),
        missing=("log_lines.kind",),
    )


def _equivalent() -> Action:
    return Action(
        what="use the equivalent utilisation that the start-up log prints, or capture fewer sizes",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="less memory is left for graphs",
        verify="stepscope diagnose --since 10m",
        revert="the utilisation as it was",
    )
