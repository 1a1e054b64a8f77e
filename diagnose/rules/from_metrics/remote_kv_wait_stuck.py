"""remote-kv-wait-stuck, from scrapes alone.

Two minutes or more in which requests were set aside at every scrape and never fewer, while KV
transfers failed; or in which as many loads stayed in progress, where the engine says their stage.
With a connector configured and adapters off it is also inferred, with low confidence, from requests
that only gather (three times as many, three more) while others end and blocks are free.

Adapters and grammars share the gauge: without a failed transfer, the stage of the loads or a
growing crowd behind a connector it is not measured. A queue that goes down now and then moves.
"""

from __future__ import annotations

import numpy as np

from diagnose.alerts.alert import DEFERRED, ENGINE, Alert, seconds
from diagnose.finding import (
    Action,
    Cause,
    Finding,
    Healthy,
    Impact,
    Level,
    RuleVerdict,
    Severity,
)
from diagnose.reading import NS
from diagnose.rule import Context, Earlier
from diagnose.rules.remote_kv_wait_stuck import ID, MIN_STUCK_NS, RULE
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_facts import MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, span_of, too_few
from diagnose.words import connector_name, duration, plural

MIN_GROWTH = 3
"""Requests set aside at the end against the beginning, where no failure is counted. Starting value.
"""
MIN_MORE = 3
"""And at least so many more. Starting value."""
MAX_KV_USED = 0.6
"""KV gauge up to which blocks are not what they wait for. Source: playbook, as for
`deferred-slot-exhaustion`."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where deferred requests never get fewer and transfers fail."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    loads = _never_fewer(facts, "num_kv_loads_in_progress")
    if loads is not None:
        return _finding(context, facts, loads, "num_kv_loads_in_progress")
    if missing := facts.missing("num_waiting_deferred"):
        return not_measured(ID, missing)
    stuck = _never_fewer(facts, "num_waiting_deferred")
    if stuck is None:
        came = "those set aside came back" if facts["num_waiting_deferred"].max else "0 set aside"
        return Healthy(rule=ID, name="remote KV", number=came)
    if facts["num_kv_loads_in_progress"].is_measured:
        return Healthy(rule=ID, name="remote KV", number="no load stayed in progress")
    failed = facts.columns["num_failed_transfers"][stuck.intervals]
    if _only_gathers(context, facts, stuck):
        return _finding(context, facts, stuck, "num_waiting_deferred")
    if not np.nansum(failed):
        missing = facts.missing("num_failed_transfers") or ("wait_reasons.wait_reason",)
        why = "requests stay set aside; adapters, grammars and remote KV share the gauge"
        return not_measured(ID, (*missing, "connector_loads.outcome"), why)
    return _finding(context, facts, stuck, "num_waiting_deferred")


def _never_fewer(facts: MetricFacts, column: str) -> Stretch | None:
    values = facts.columns[column]
    with np.errstate(invalid="ignore"):
        never_fewer = np.diff(values, prepend=values[:1]) >= 0
    return facts.longest(values > 0, never_fewer, min_ns=MIN_STUCK_NS)


def _only_gathers(context: Context, facts: MetricFacts, stuck: Stretch) -> bool:
    """Whether requests gather behind a connector while others end: nothing else sets them aside.

    Adapters must be off, and blocks to spare. Grammars remain: hence the low confidence.
    """
    settings = context.settings
    if settings.kv_connector is None or settings.max_loras is not None:
        return False
    deferred = facts.columns["num_waiting_deferred"][stuck.scrapes]
    used = facts.columns["kv_cache_usage_ratio"][stuck.scrapes]
    ended = np.nansum(facts.columns["num_finished"][stuck.intervals])
    gathers = deferred[-1] >= max(MIN_GROWTH * deferred[0], deferred[0] + MIN_MORE)
    return bool(gathers and ended > 0 and np.nanmax(used) < MAX_KV_USED)


def _finding(context: Context, facts: MetricFacts, stuck: Stretch, column: str) -> Finding:
    waiting = round(float(np.nanmax(facts.columns[column][stuck.scrapes])))
    lasted, inside = duration(stuck.duration_ns), facts.between(stuck)
    failed = facts["num_failed_transfers"].sum
    fails = "" if not failed else f", and {plural(failed, 'transfer')} failed"
    connector = connector_name(context.settings.kv_connector)
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(stuck),
        sentence=f"{plural(waiting, 'request')} set aside never got fewer in {lasted}{fails}; they "
        f"wait for KV that does not come ({connector})",
        symptom=f"{plural(waiting, 'request')} set aside for {lasted}",
        cause=Cause(
            kind="stuck_loads",
            sentence=f"stuck loads: {waiting:,} wait, {_failures(failed)} (inferred)",
        ),
        confidence=_confidence(column, failed),
        rejected=ruled_out(("a busy link", "nobody came back")),
        evidence=(
            number(
                facts, "time in which they never got fewer", stuck.duration_ns, "ns",
                "(max(ts) - min(ts))::BIGINT", inside, threshold=MIN_STUCK_NS,
                n=stuck.num_scrapes,
            ),
            number(
                facts, "requests that wait", waiting, "requests", f"max({column})", inside,
                n=stuck.num_scrapes,
            ),
        ),
        impact=Impact(
            cost=(f"{plural(waiting, 'request')} wait for ever and hold blocks and slots",),
            numbers=(("num_waiting", waiting), ("stuck_ns", stuck.duration_ns)),
        ),
        actions=(_time_out(),),
        missing=("connector_loads.outcome", "wait_reasons.wait_reason"),
    )  # fmt: skip


def _failures(failed: int | None) -> str:
    return "failures are not counted" if failed is None else f"{failed:,} transfers failed"


def _confidence(column: str, failed: int | None) -> tuple[Level, str]:
    if column == "num_kv_loads_in_progress":
        return "high", "the engine says the stage of its loads"
    if failed:
        return "medium", "adapters and grammars share the gauge; transfers failed meanwhile"
    return "low", "a connector is configured and no adapters are; grammars share the gauge"


def _time_out() -> Action:
    return Action(
        what="give loads a time-out and choose what happens when one fails; restart to free those "
        "that wait",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="a slow load fails instead of coming late",
        verify="stepscope diagnose --since 10m",
        revert="the policy as it was",
    )


_LONG = seconds(MIN_STUCK_NS)
_LOADS = 'sum without (stage) (vllm:num_requests_kv_fetch_by_stage{stage="in_progress"})'


def _never_fewer_promql(gauge: str) -> str:
    window = f"({gauge})[{_LONG}:15s]"
    return f"min_over_time({window}) > 0\n  and resets({window}) == 0"


ALERT = Alert(
    rule=ID,
    severity=Severity.critical,
    hold="30s",
    expr=f"""
{_never_fewer_promql(_LOADS)}
or
{_never_fewer_promql(DEFERRED)}
  and increase(vllm:nixl_num_failed_transfers_total[10m]) > 0
  unless {_LOADS}
""",
    summary="Requests wait for KV blocks that do not come",
    description="{{ $value }} requests or more wait for KV loads, and never fewer in "
    f"{MIN_STUCK_NS // NS} s. {ENGINE}",
    queries=("scraped-load", "waits-by-reason", "loads-by-tier"),
)
