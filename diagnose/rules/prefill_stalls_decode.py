"""prefill-stalls-decode: answers crawl while somebody else's prompt is computed.

What it measures
----------------
How long steps took that computed prompts beside answers, against steps that only decoded, at
similar numbers of decoding requests: each answer gets one token a step either way. The rule fires
where the rate falls below 60 % of the calm one in 50 mixed steps or more that make up a tenth of
the time.

Why it matters
--------------
Each step waits for the largest chunk in it. One long prompt makes every running answer stutter for
as long as it is computed.

When it stays quiet
-------------------
Evictions make answers wait too: steps that recompute are left out, and where the pool is short the
preemption rules say it. Prompts that come all the time leave no calm step to compare with: then it
is not measured.

What to do
----------
Smaller chunks (`max_num_batched_tokens`, `long_prefill_token_threshold`), or prefill on engines of
its own.

Source
------
Report of a request that decoded at 55 tokens/s, 5 beside a cold prompt of 100,000 tokens, and 55
again. 60 %: the playbook's starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out, span_to
from diagnose.words import count, duration, percent

ID = "prefill-stalls-decode"

MIN_RATE = 0.6
"""Decode rate in mixed steps against calm ones. Source: playbook."""
MIN_STEPS = 50
"""Mixed steps, and calm ones. Starting value."""
MIN_TIME_SHARE = 0.1
"""Share of the steps' time that mixed ones take. Starting value."""

SQL = """
WITH decodes AS (
    SELECT ts, updated_ts, updated_ts - ts AS step_ns, num_decode_requests AS n,
           floor(log2(num_decode_requests)) AS size,
           num_prefill_tokens > num_decode_tokens AS mixed,
           num_prefill_tokens, top_request_tokens
    FROM steps
    WHERE {where} AND num_decode_requests > 0 AND num_repeats = 1 AND updated_ts > ts
      AND (num_prefill_tokens > num_decode_tokens OR num_prefill_tokens = 0)
      AND coalesce(num_recomputed_tokens, 0) = 0
), sizes AS (
    SELECT size, count(*) FILTER (mixed) AS num_mixed, count(*) FILTER (NOT mixed) AS num_calm,
           median(step_ns) FILTER (mixed) AS mixed_ns, median(step_ns) FILTER (NOT mixed) AS calm_ns
    FROM decodes GROUP BY size
), compared AS (
    SELECT sum(num_mixed)::BIGINT AS num_mixed, sum(num_calm)::BIGINT AS num_calm,
           sum(calm_ns / mixed_ns * num_mixed) / nullif(sum(num_mixed), 0) AS rate,
           sum(calm_ns * num_mixed) / nullif(sum(num_mixed), 0) AS calm_ns,
           sum(mixed_ns * num_mixed) / nullif(sum(num_mixed), 0) AS mixed_ns
    FROM sizes WHERE num_mixed > 0 AND num_calm > 0
)
SELECT *, (SELECT sum(step_ns) FILTER (mixed) / nullif(sum(step_ns), 0) FROM decodes) AS time_share,
       (SELECT min(ts) FROM decodes WHERE mixed) AS first_ts,
       (SELECT max(updated_ts) FROM decodes WHERE mixed) AS last_ts,
       (SELECT max(n) FROM decodes WHERE mixed) AS most_decodes,
       (SELECT median(num_prefill_tokens) FROM decodes WHERE mixed)::BIGINT AS chunk
FROM compared
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where answers crawl beside prompts."""
    lacks = lacking(context, ID, "steps", "num_prefill_tokens", "num_decode_requests", "updated_ts")
    if lacks is not None:
        return lacks
    seen = context.row(SQL)
    num_mixed, num_calm = seen["num_mixed"] or 0, seen["num_calm"] or 0
    if num_mixed < MIN_STEPS:
        return healthy(ID, "answers beside prompts", f"{num_mixed:,} mixed steps")
    if num_calm < MIN_STEPS:
        why = f"{num_calm:,} steps only decoded: nothing to compare with"
        return not_measured(ID, ("steps.num_decode_requests",), why)
    if seen["rate"] >= MIN_RATE or seen["time_share"] < MIN_TIME_SHARE:
        number = f"{percent(seen['rate'])} of the calm rate, {percent(seen['time_share'])} of time"
        return healthy(ID, "answers beside prompts", number)
    return _finding(context, seen)


def _finding(context: Context, seen: dict[str, Any]) -> Finding:
    sql = context.scope.fill(SQL)
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=span_to(context, seen["first_ts"], seen["last_ts"]),
        sentence=f"Answers came at {percent(seen['rate'])} of their calm rate beside prompts: a "
        f"step took {duration(seen['mixed_ns'])} instead of {duration(seen['calm_ns'])}, for "
        f"{percent(seen['time_share'])} of the time and up to {seen['most_decodes']:,} requests",
        symptom=f"{seen['num_mixed']:,} steps computed prompts beside answers",
        cause=Cause(
            kind="setting",
            sentence=f"setting: chunks of {count(seen['chunk'])} prompt tokens in a step (median)",
        ),
        confidence=("high", f"{seen['num_calm']:,} calm steps at equal numbers of answers"),
        rejected=ruled_out(
            ("preemption", f"{context.accounting.num_from_kv:,}; their steps are left out")
        ),
        evidence=(
            measured(
                "decode rate beside prompts against calm", seen["rate"], "ratio", sql,
                threshold=MIN_RATE, n=seen["num_mixed"], provenance="derived",
            ),
            measured(
                "share of the steps' time", seen["time_share"], "ratio", sql,
                threshold=MIN_TIME_SHARE, n=seen["num_mixed"],
            ),
        ),
        impact=Impact(
            cost=(f"up to {seen['most_decodes']:,} answers stutter",),
            numbers=(
                ("mixed_step_ns", round(seen["mixed_ns"])),
                ("calm_step_ns", round(seen["calm_ns"])),
            ),
        ),
        num_affected=seen["most_decodes"],
        actions=_actions(context, seen["chunk"]),
    )  # fmt: skip


def _actions(context: Context, chunk: int | None) -> tuple[Action, ...]:
    apart = advise(
        "compute prompts on engines of their own", applies="client", trade_off="KV has to be moved"
    )
    budget = context.settings.max_num_batched_tokens
    slots = context.settings.max_num_seqs or 0
    if budget is None or chunk is None or budget // 2 <= slots or chunk <= budget // 4:
        return (apart,)
    smaller = advise(
        "smaller chunks",
        flag="--max-num-batched-tokens",
        old=budget,
        new=budget // 2,
        trade_off="first tokens of long prompts come later",
    )
    return smaller, apart


RULE = Rule(
    id=ID,
    version=2,
    prefix="psd",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("kv-preemption-thrash", "kv-preemption-pressure", "kv-load-failure"),
)
