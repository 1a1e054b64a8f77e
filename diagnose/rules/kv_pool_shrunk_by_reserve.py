"""kv-pool-shrunk-by-reserve: after a restart the KV pool is smaller than before.

What it measures
----------------
The KV pool of this start of the engine against the start before it, on the same host with the same
model and the same `gpu_memory_utilization`: less than 60 % of the tokens.

Why it matters
--------------
Newer versions set memory aside for graphs before they size the pool. With the same flags fewer
requests fit, and preemptions begin though the traffic is as it was.

When it stays quiet
-------------------
Within one start a pool does not shrink: blocks that go missing at run time are `kv-block-leak`.
With one start only there is nothing to compare with. A pool that was set by hand is no surprise.

What to do
----------
Look for the equivalent utilisation in the start-up log and use it, capture fewer sizes, or give the
KV memory in bytes.

Source
------
Report of a pool of 769,888 tokens that became 245,840 with the estimate of graphs. 60 %: the
playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, ruled_out
from diagnose.words import count, percent

ID = "kv-pool-shrunk-by-reserve"

MAX_RATIO = 0.6
"""Pool against that of the start before. Source: playbook."""

SQL = """
WITH own AS (
    SELECT * FROM engines WHERE engine = {engine} ORDER BY started_ts DESC LIMIT 1
), starts AS (
    SELECT e.engine, max(e.started_ts) AS started_ts,
           max(e.num_usable_blocks::BIGINT * e.block_size) AS num_tokens,
           max(e.memory_graph_bytes) AS graph_bytes
    FROM engines AS e JOIN own AS o
      ON e.host IS NOT DISTINCT FROM o.host AND e.model IS NOT DISTINCT FROM o.model
     AND e.gpu_memory_utilization IS NOT DISTINCT FROM o.gpu_memory_utilization
     AND e.dp_rank IS NOT DISTINCT FROM o.dp_rank AND e.device IS NOT DISTINCT FROM o.device
    WHERE e.started_ts <= o.started_ts GROUP BY e.engine
)
FROM starts WHERE num_tokens IS NOT NULL
ORDER BY started_ts DESC, engine = {engine} DESC LIMIT 2
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where this start has a much smaller pool than the one before."""
    if context.settings.num_usable_blocks is None or context.settings.block_size is None:
        return not_measured(ID, ("engines.num_usable_blocks", "engines.block_size"))
    pools = context.rows(SQL)
    if len(pools) < 2:
        number = count(pools[0]["num_tokens"]) if pools else "unknown"
        return healthy(ID, "KV pool", f"{number} tokens, no start before")
    new, old = pools[0], pools[1]
    if new["num_tokens"] >= MAX_RATIO * old["num_tokens"]:
        number = f"{count(old['num_tokens'])} -> {count(new['num_tokens'])} tokens"
        return healthy(ID, "KV pool", number)
    return _finding(context, old, new)


def _finding(context: Context, old: dict[str, Any], new: dict[str, Any]) -> Finding:
    before, after = old["num_tokens"], new["num_tokens"]
    graphs = ""
    if old["graph_bytes"] is not None and new["graph_bytes"] is not None:
        graphs = f"; graphs hold {new['graph_bytes']:,} bytes, before {old['graph_bytes']:,}"
    return finding(
        context,
        RULE,
        severity=Severity.medium,
        span=Span(opened_ts=new["started_ts"], cleared_ts=context.quality.stopped_ts),
        sentence=f"The KV pool holds {after:,} tokens since this start, before it {before:,}, with "
        f"the same share of the device{graphs}",
        symptom=f"the KV pool shrank to {percent(after / before)}",
        cause=Cause(kind="smaller_pool", sentence=f"smaller pool: {before:,} -> {after:,} tokens"),
        confidence=("medium", "same host, model and utilisation; other flags may differ"),
        rejected=ruled_out(("block leak", "the pool itself is smaller")),
        evidence=(
            measured(
                "KV pool against the start before", after / before, "ratio",
                context.scope.fill(SQL), threshold=MAX_RATIO, n=2,
            ),
        ),
        impact=Impact(
            cost=(f"room for {before - after:,} tokens fewer",),
            numbers=(("num_tokens_before", before), ("num_tokens_after", after)),
        ),
        actions=(
            advise(
                "compare the settings of both starts; capture fewer graph sizes, or give the KV "
                "memory in bytes",
                trade_off="less memory is left for graphs",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=2,
    prefix="kps",
    page=__doc__ or "",
    decide=decide,
)
