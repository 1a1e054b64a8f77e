"""worker-hang, from scrapes alone.

A minute or more in which requests were running at every scrape, neither prompt nor output tokens
were counted and nobody was preempted, in a process that had given tokens before; or a line of the
engine's log that a collective or a step timed out.
"""

from __future__ import annotations

import numpy as np

from diagnose.alerts.alert import (
    ENGINE,
    OUTPUT_TOKENS,
    PREEMPTIONS,
    PROMPT_TOKENS,
    RUNNING,
    Alert,
    no_tokens,
    seconds,
)
from diagnose.finding import Action, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.log_evidence import LogEvidence, log_evidence
from diagnose.reading import NS
from diagnose.rule import Context, Earlier
from diagnose.rules.worker_hang import ID, MIN_STILL_NS, RULE
from diagnose.saying import not_measured, ruled_out, undetermined
from diagnose.scrapes.metric_facts import MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, span_of, too_few
from diagnose.words import count, duration, plural


def still_runners(facts: MetricFacts) -> Stretch | None:
    """Returns the longest stretch in which requests ran without a token; `None`: too short."""
    running, preempted = facts["num_running"].values, facts["num_preemptions"].values
    quiet = (facts.num_tokens.values == 0) & (np.nan_to_num(preempted) == 0)
    return facts.longest(running > 0, quiet, min_ns=MIN_STILL_NS)


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where requests run and tokens have stopped."""
    facts = facts_of(context)
    lines = log_evidence(context, "collective_timeout", "nccl_error", "step_timeout")
    if lines is not None:
        return _told_by_its_log(context, lines)
    if (few := too_few(context, ID)) is not None:
        return few
    missing = facts.missing("num_running")
    if not facts.num_tokens.is_measured:
        missing += facts.missing("num_prompt_tokens", "num_generation_tokens")
    if missing:
        return not_measured(ID, missing)
    still = still_runners(facts)
    if still is None:
        return Healthy(rule=ID, name="progress", number="no minute without a token")
    if not _flowed_before(facts, still):
        why = "no token was ever counted: a first compile or an item without a place looks the same"
        return not_measured(ID, ("steps.num_scheduled_tokens", "heartbeats.phase_age_ns"), why)
    return _finding(context, facts, still)


def _flowed_before(facts: MetricFacts, still: Stretch) -> bool:
    totals = np.nan_to_num(facts.columns["num_prompt_tokens_total"]) + np.nan_to_num(
        facts.columns["num_generation_tokens_total"]
    )
    earlier = np.nan_to_num(facts.num_tokens.values[: still.first + 1])
    return bool(totals[still.first] > 0 or earlier.sum() > 0)


def _finding(context: Context, facts: MetricFacts, still: Stretch) -> Finding:
    running = round(float(np.nanmax(facts.columns["num_running"][still.scrapes])))
    ranks = context.settings.setting("tensor_parallel_size", "tp", "tp_size")
    apart = f"; {ranks} ranks have to agree on each step" if ranks not in (None, 1) else ""
    lasted = duration(still.duration_ns)
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(still),
        sentence=f"{plural(running, 'running request')} got no token for {lasted}{apart}",
        symptom=f"tokens stopped for {lasted} with {plural(running, 'request')} running",
        cause=undetermined("a device or a collective does not answer; no scrape says which"),
        confidence=("medium", "steps that give nobody a token would look the same"),
        rejected=ruled_out(
            ("preemption thrash", "the counter stood still"),
            ("first compile", "tokens were counted before"),
        ),
        evidence=(
            number(
                facts,
                "time with running requests and no token",
                still.duration_ns,
                "ns",
                "(max(ts) - min(ts))::BIGINT",
                facts.between(still),
                threshold=MIN_STILL_NS,
                n=still.num_scrapes,
            ),
        ),
        impact=Impact(
            cost=(f"{count(running)} answers stopped for {lasted}",),
            numbers=(("still_ns", still.duration_ns), ("num_running", running)),
        ),
        actions=(_restart(),),
        missing=("heartbeats.phase_age_ns", "log_lines.kind"),
    )


def _told_by_its_log(context: Context, lines: LogEvidence) -> Finding:
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=lines.span,
        sentence="A worker or a collective did not answer in time, as the engine's log says",
        symptom=f"{plural(lines.num, 'line')} of a collective or a step that timed out",
        cause=undetermined("which rank hung first is in no line"),
        confidence=("high", "the engine's own time-out"),
        evidence=(lines.evidence("lines of NCCL errors, collectives and steps that timed out"),),
        impact=Impact(
            cost=("all requests in the engine were lost",), numbers=(("num_lines", lines.num),)
        ),
        actions=(_restart(),),
        missing=("heartbeats.phase_age_ns",),
        told_by=lines.told_by,
    )


def _restart() -> Action:
    return Action(
        what="look for NCCL or RPC time-outs in the log, restart, and probe token progress",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="requests in the engine are lost",
        verify="stepscope diagnose --since 10m",
        revert="none needed",
    )


_MINUTE = seconds(MIN_STILL_NS)

ALERT = Alert(
    rule=ID,
    severity=Severity.critical,
    hold="15s",
    expr=f"""
min_over_time({RUNNING}[{_MINUTE}]) > 0
  and {no_tokens(_MINUTE)}
  and {PROMPT_TOKENS} + {OUTPUT_TOKENS} > 0
  unless increase({PREEMPTIONS}[{_MINUTE}]) > 0
""",
    summary="Requests run and no token comes out",
    description=f"{{{{ $value }}}} running requests got no token for {MIN_STILL_NS // NS} s, "
    f"though tokens were counted before. {ENGINE}",
    queries=("scraped-load", "slowest-steps", "unfinished"),
)
