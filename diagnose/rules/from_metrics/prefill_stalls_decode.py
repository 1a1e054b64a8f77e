"""prefill-stalls-decode, from scrapes alone.

Output tokens a second, in all and for each running request, in intervals that computed more prompt
than output tokens, against intervals that computed hardly any prompt. The rule fires where both
fall below 60 %, with two intervals of each kind or more, ten seconds with prompts that are a fifth
of the time, and output back afterwards. Only intervals count in which requests ran at both ends and
nobody was preempted.
"""

from __future__ import annotations

import numpy as np

from diagnose.advice import VERIFY
from diagnose.alerts.alert import (
    ENGINE,
    OUTPUT_TOKENS,
    PREEMPTIONS,
    PROMPT_TOKENS,
    RUNNING,
    Alert,
)
from diagnose.finding import (
    Action,
    Cause,
    Evidence,
    Finding,
    Healthy,
    Impact,
    RuleVerdict,
    Severity,
)
from diagnose.reading import NS
from diagnose.rule import Context, Earlier
from diagnose.rules.prefill_stalls_decode import ID, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_capacity import record_steps
from diagnose.scrapes.metric_facts import Floats, Mask, MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, too_few
from diagnose.scrapes.metric_finding import span_of_window as whole
from diagnose.words import duration, percent

MAX_RATIO = 0.6
"""Output of a running request beside prompts, against without. Source: playbook."""
MIN_INTERVALS = 2
"""Intervals of each kind. Starting value."""
MIN_MIXED_NS = 10 * NS
"""How long they take in all. Source: tuned on seeds 0-5 of benchmarks/faults.py: scrapes twice a
second make two intervals of any prompt."""
MIN_TIME_SHARE = 0.2
"""Their share of the time in which output moved. Source: as for the step record."""
FEW_PROMPTS = 0.05
"""Prompt tokens for each output token up to which an interval only decodes. Starting value."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where output per request falls with prompts and comes back."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    needed = ("num_running", "num_prompt_tokens", "num_generation_tokens", "num_preemptions")
    if missing := facts.missing(*needed):
        return not_measured(ID, missing)
    pace = _pace(facts)
    mixed, pure = _kinds(facts, pace)
    if mixed.sum() < MIN_INTERVALS or pure.sum() < MIN_INTERVALS:
        why = f"{mixed.sum()} intervals with prompts and {pure.sum()} without; 2 of each are needed"
        return not_measured(ID, ("steps.num_prefill_tokens",), why)
    ratio = float(np.median(pace[mixed]) / np.median(pace[pure]))
    outputs = facts.per_second("num_generation_tokens")
    falls = bool(np.median(outputs[mixed]) < MAX_RATIO * np.median(outputs[pure]))
    comes_back = bool(pure[int(np.flatnonzero(mixed)[0]) :].any())
    if ratio >= MAX_RATIO or not falls or not comes_back or not _lasts(facts, mixed, pace):
        number_ = f"output beside prompts at {percent(ratio)}"
        return Healthy(rule=ID, name="prefill beside decode", number=number_)
    return _finding(context, facts, pace, mixed, pure, ratio)


def _lasts(facts: MetricFacts, mixed: Mask, pace: Floats) -> bool:
    """Whether the intervals with prompts take up much of the time in which output moved."""
    spent = float(np.nansum(facts.interval_ns[mixed]))
    moving = float(np.nansum(facts.interval_ns[np.isfinite(pace)]))
    return spent >= MIN_MIXED_NS and spent >= MIN_TIME_SHARE * moving


def _pace(facts: MetricFacts) -> Floats:
    """Returns output tokens a second for each request that ran, where some did at both ends."""
    running = facts["num_running"].values
    before = np.append(np.nan, running[:-1])
    ran = np.where((running > 0) & (before > 0), (running + before) / 2, np.nan)
    pace: Floats = facts.per_second("num_generation_tokens") / ran
    return pace


def _kinds(facts: MetricFacts, pace: Floats) -> tuple[Mask, Mask]:
    """Returns the intervals with more prompt than output, and those with hardly any prompt."""
    prompts, outputs = facts["num_prompt_tokens"].values, facts["num_generation_tokens"].values
    moves = np.isfinite(pace) & (outputs > 0) & (facts["num_preemptions"].values == 0)
    return moves & (prompts > outputs), moves & (prompts <= FEW_PROMPTS * outputs)


def _finding(
    context: Context, facts: MetricFacts, pace: Floats, mixed: Mask, pure: Mask, ratio: float
) -> Finding:
    slow, calm = float(np.median(pace[mixed])), float(np.median(pace[pure]))
    spent = round(float(np.nansum(facts.interval_ns[mixed])))
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=whole(facts),
        sentence=f"Running answers get {slow:,.1f} tokens/s while prompts are computed and "
        f"{calm:,.1f} without",
        symptom=f"output of a running request falls to {percent(ratio)} beside prompts",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: prompts share the steps of running answers; whose is in no "
            "scrape",
        ),
        confidence=("medium", f"{mixed.sum()} intervals with prompts, {pure.sum()} without"),
        rejected=ruled_out(("preemption", "0 counted in these intervals")),
        evidence=_evidence(facts, mixed, pure, ratio, calm),
        impact=Impact(
            users=(f"answers crawled for {duration(spent)}",),
            numbers=(("slow_tokens_per_second", slow), ("calm_tokens_per_second", calm)),
        ),
        actions=_actions(context),
        missing=("step_requests.num_scheduled_tokens",),
    )


def _evidence(
    facts: MetricFacts, mixed: Mask, pure: Mask, ratio: float, calm: float
) -> tuple[Evidence, ...]:
    pace = "num_generation_tokens / (interval_ns / 1e9) / ((num_running + before) / 2)"
    beside = "num_prompt_tokens > num_generation_tokens"
    alone = f"num_prompt_tokens <= {FEW_PROMPTS} * num_generation_tokens"
    counts = "num_running > 0 AND before > 0 AND num_generation_tokens > 0 AND num_preemptions = 0"
    both = f"median({pace}) FILTER ({beside}) / median({pace}) FILTER ({alone})"
    return (
        Evidence(
            name="output of a running request beside prompts, against without",
            value=ratio,
            unit="ratio",
            threshold=MAX_RATIO,
            n=int(mixed.sum() + pure.sum()),
            provenance="derived",
            sql=facts.sql_with_before("num_running", both, counts),
        ),
        Evidence(
            name="tokens/s of a running request without prompts",
            value=calm,
            unit="",
            n=int(pure.sum()),
            provenance="derived",
            sql=facts.sql_with_before("num_running", f"median({pace})", f"{counts} AND {alone}"),
        ),
    )


def _actions(context: Context) -> tuple[Action, ...]:
    old = context.settings.max_num_batched_tokens
    if old is None or old < 2:
        return (record_steps(),)
    return (
        Action(
            what="halve the largest step, and look again",
            flag="--max-num-batched-tokens",
            old=str(old),
            new=str(old // 2),
            applies="restart",
            trade_off="prompts take longer",
            verify=VERIFY,
            revert=f"--max-num-batched-tokens {old}",
        ),
    )


_PACE = f"""
rate({OUTPUT_TOKENS}[1m]) / avg_over_time({RUNNING}[1m])
  and min_over_time({RUNNING}[1m]) > 0
  and rate({OUTPUT_TOKENS}[1m]) > 0
  and increase({PREEMPTIONS}[1m]) == 0
"""
_A_MINUTE = 4  # evaluations that see the same minute
_BESIDE, _ALONE = "stepscope:decode_pace_beside_prompts", "stepscope:decode_pace_alone"

_PROMPTS, _OUTPUTS = f"rate({PROMPT_TOKENS}[1m])", f"rate({OUTPUT_TOKENS}[1m])"

RECORDS = {
    _BESIDE: f"{_PACE}  and {_PROMPTS} > {_OUTPUTS}\n",
    _ALONE: f"{_PACE}  and {_PROMPTS} <= {FEW_PROMPTS} * {_OUTPUTS}\n",
}
"""Output tokens a second of a running request, while prompts are computed and while none is."""

ALERT = Alert(
    rule=ID,
    severity=Severity.high,
    hold="1m",
    expr=f"""
quantile_over_time(0.5, {_BESIDE}[15m]) / quantile_over_time(0.5, {_ALONE}[15m]) < {MAX_RATIO}
  and quantile_over_time(0.5, (rate({OUTPUT_TOKENS}[1m]) and {_BESIDE})[15m:15s])
    < {MAX_RATIO} * quantile_over_time(0.5, (rate({OUTPUT_TOKENS}[1m]) and {_ALONE})[15m:15s])
  and count_over_time({_BESIDE}[15m]) >= {MIN_INTERVALS * _A_MINUTE}
  and count_over_time({_ALONE}[15m]) >= {MIN_INTERVALS * _A_MINUTE}
""",
    summary="Running answers crawl while prompts are computed",
    description="A running request's output falls to {{ $value | humanizePercentage }} while "
    f"prompts are computed. {ENGINE}",
    queries=("scraped-load", "slowest-steps", "longest-pauses"),
)
