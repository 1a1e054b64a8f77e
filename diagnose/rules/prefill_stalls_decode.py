"""prefill-stalls-decode: answers crawl while somebody else's prompt is computed.

What it measures
----------------
Stalls: steps in a row, a second long or longer, each of which computed prompts beside answers. It
compares how long these steps took with steps that only decoded, at similar numbers of decoding
requests: each answer gets one token a step either way. The rule fires where the rate falls below
60 % of the calm one in stalls that make up a tenth of their episode, two seconds or more.

Why it matters
--------------
Each step waits for the largest chunk in it. One long prompt makes every running answer stutter for
as long as it is computed.

When it stays quiet
-------------------
A short prompt makes one step longer, and nobody sees it: such steps take a tenth of the time of any
busy engine. Evictions make answers wait too: steps that recompute are left out, and where the pool
is short the preemption rules say it, or `queueing-with-kv-full`. Prompts that come all the time
leave no calm step to compare with: then it is not measured.

What to do
----------
Smaller chunks (`max_num_batched_tokens`, `long_prefill_token_threshold`), or prefill on engines of
its own.

Source
------
Report of a request that decoded at 55 tokens/s, 5 beside a cold prompt of 100,000 tokens, and 55
again. 60 %: the playbook's starting value; the others were tuned on the fault matrix.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.episodes import worst_episode
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.reading import NS, read_row
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out, span_to
from diagnose.words import count, duration, percent

ID = "prefill-stalls-decode"

MIN_RATE = 0.6
"""Decode rate in mixed steps against calm ones. Source: playbook."""
MIN_CALM_STEPS = 50
"""Steps that only decoded. Starting value."""
MIN_STALL_NS = NS
"""Mixed steps in a row that a reader notices. Source: tuned on seeds 0-5 of benchmarks/faults.py:
prompts of one or two chunks take at most 0.3 s, a cold prompt of many chunks 2 s and more."""
MIN_STALLED_NS = 2 * NS
"""Time of all stalls of an episode. Source: as for `MIN_STALL_NS`."""
MIN_TIME_SHARE = 0.1
"""Share of the episode's time, 15 s around it included, that stalls take. Starting value."""

DECODES = f"""
WITH decodes AS (
    SELECT step, ts, updated_ts, updated_ts - ts AS step_ns, num_decode_requests AS n,
           num_prefill_tokens > num_decode_tokens AS mixed, num_prefill_tokens
    FROM steps
    WHERE {{scope}} AND num_decode_requests > 0 AND num_repeats = 1 AND updated_ts > ts
      AND (num_prefill_tokens > num_decode_tokens OR num_prefill_tokens = 0)
      AND coalesce(num_recomputed_tokens, 0) = 0
), marked AS (
    SELECT *, (step <> lag(step + 1, 1, 0) OVER (ORDER BY step))::INTEGER AS is_first
    FROM decodes WHERE mixed
), numbered AS (
    SELECT *, sum(is_first) OVER (ORDER BY step ROWS UNBOUNDED PRECEDING) AS run FROM marked
), stalls AS (
    SELECT min(step) AS first_step, max(step) AS last_step
    FROM numbered GROUP BY run HAVING sum(step_ns) >= {MIN_STALL_NS}
), stalled AS (
    SELECT d.* FROM numbered AS d JOIN stalls ON step BETWEEN first_step AND last_step
)
"""
MOMENTS_SQL = (
    DECODES.replace("{scope}", "engine = {engine} AND ts <= {end}") + "SELECT ts FROM stalled"
)
SQL = (
    DECODES.replace("{scope}", "{where}")
    + """, sizes AS (
    SELECT floor(log2(n)) AS size, count(*) FILTER (NOT mixed) AS num_calm,
           median(step_ns) FILTER (NOT mixed) AS calm_ns
    FROM decodes GROUP BY size
), slow AS (
    SELECT floor(log2(n)) AS size, count(*) AS num_mixed, median(step_ns) AS mixed_ns
    FROM stalled GROUP BY size
), compared AS (
    SELECT sum(num_mixed)::BIGINT AS num_mixed, sum(num_calm)::BIGINT AS num_calm,
           sum(calm_ns / mixed_ns * num_mixed) / nullif(sum(num_mixed), 0) AS rate,
           sum(calm_ns * num_mixed) / nullif(sum(num_mixed), 0) AS calm_ns,
           sum(mixed_ns * num_mixed) / nullif(sum(num_mixed), 0) AS mixed_ns
    FROM slow JOIN sizes USING (size) WHERE num_calm > 0
)
SELECT *, (SELECT sum(step_ns) FROM stalled)::BIGINT AS stalled_ns,
       (SELECT sum(step_ns) FROM stalled) / nullif({end} - {start}, 0) AS time_share,
       (SELECT min(ts) FROM stalled) AS first_ts,
       (SELECT max(updated_ts) FROM stalled) AS last_ts,
       (SELECT max(n) FROM stalled) AS most_decodes,
       (SELECT median(num_prefill_tokens) FROM stalled)::BIGINT AS chunk
FROM compared
"""
)


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where answers crawl beside prompts."""
    lacks = lacking(context, ID, "steps", "num_prefill_tokens", "num_decode_requests", "updated_ts")
    if lacks is not None:
        return lacks
    episode = worst_episode(context, MOMENTS_SQL)
    if episode is None:
        return healthy(ID, "answers beside prompts", "no stall of a second")
    sql = episode.stretch.fill(SQL)
    seen = read_row(context.log, sql) | {"sql": sql}
    stalled_ns, num_calm = seen["stalled_ns"] or 0, seen["num_calm"] or 0
    if stalled_ns < MIN_STALLED_NS or seen["time_share"] < MIN_TIME_SHARE:
        return healthy(ID, "answers beside prompts", f"stalled for {duration(stalled_ns)}")
    if num_calm < MIN_CALM_STEPS:
        why = f"{num_calm:,} steps only decoded: nothing to compare with"
        return not_measured(ID, ("steps.num_decode_requests",), why)
    if seen["rate"] >= MIN_RATE:
        return healthy(ID, "answers beside prompts", f"{percent(seen['rate'])} of the calm rate")
    return _finding(context, seen)


def _finding(context: Context, seen: dict[str, Any]) -> Finding:
    sql = seen["sql"]
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=span_to(context, seen["first_ts"], seen["last_ts"]),
        sentence=f"Answers came at {percent(seen['rate'])} of their calm rate beside prompts: a "
        f"step took {duration(seen['mixed_ns'])} instead of {duration(seen['calm_ns'])}, for "
        f"{duration(seen['stalled_ns'])} in all and up to {seen['most_decodes']:,} requests",
        symptom=f"{seen['num_mixed']:,} steps in a row computed prompts beside answers",
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
                "share of the episode's time", seen["time_share"], "ratio", sql,
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
    version=3,
    prefix="psd",
    page=__doc__ or "",
    decide=decide,
    silenced_by=(
        "kv-preemption-thrash",
        "kv-preemption-pressure",
        "queueing-with-kv-full",
        "kv-load-failure",
    ),
)
