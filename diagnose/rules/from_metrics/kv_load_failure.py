"""kv-load-failure, from scrapes alone.

The increase of the connector's counter of failed transfers. An expired lease is not one; without
the counter it is not measured.
"""

from __future__ import annotations

from diagnose.alerts.alert import ENGINE, Alert
from diagnose.finding import Action, Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.log_evidence import LogEvidence, log_evidence
from diagnose.rule import Context, Earlier
from diagnose.rules.kv_load_failure import ID, RULE
from diagnose.saying import not_measured, ruled_out, undetermined
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, number, rises_of, too_few
from diagnose.words import connector_name, plural


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a transfer failed."""
    facts = facts_of(context)
    lines = log_evidence(context, "kv_load_failed", "kv_transfer_failed")
    if lines is not None and facts.missing("num_failed_transfers"):
        return _told_by_its_log(context, lines)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_failed_transfers"):
        return not_measured(ID, missing, "no such counter of a connector is scraped")
    failed = facts["num_failed_transfers"].sum
    if not failed:
        return Healthy(rule=ID, name="failed KV transfers", number="0")
    return _finding(context, facts, failed)


def _told_by_its_log(context: Context, lines: LogEvidence) -> Finding:
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=lines.span,
        sentence="KV loads or transfers failed, as the engine's log says",
        symptom=f"{plural(lines.num, 'line')} of it in the engine's log",
        cause=undetermined("the line does not say why"),
        confidence=("high", "the engine's own words"),
        evidence=(lines.evidence("lines of failed loads and transfers"),),
        actions=(_equal_sides(),),
        missing=facts_of(context).missing("num_failed_transfers"),
        told_by=lines.told_by,
    )


def _finding(context: Context, facts: MetricFacts, failed: int) -> Finding:
    expired = facts["num_expired_requests"].sum
    prompts = facts["num_prompt_tokens"].sum
    computed = "" if not prompts else f"; {prompts:,} prompt tokens were computed here"
    connector = connector_name(context.settings.kv_connector)
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=rises_of(facts, "num_failed_transfers"),
        sentence=f"{plural(failed, 'KV transfer')} failed ({connector}){computed}",
        symptom=f"{plural(failed, 'KV transfer')} failed",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: a link, a version or a producer; no scrape tells which",
        ),
        confidence=("high", "the connector counts them"),
        rejected=ruled_out(
            ("expired leases", "not measured" if expired is None else f"{expired:,} counted"),
        ),
        evidence=(
            number(
                facts, "failed KV transfers", failed, "transfers",
                "sum(num_failed_transfers)::BIGINT", threshold=0,
            ),
        ),
        impact=Impact(
            cost=(f"{plural(failed, 'load')} computed again, refused or stranded",),
            numbers=(("num_failed_transfers", failed),),
        ),
        actions=(_equal_sides(),),
        missing=("request_events.num_invalid_blocks",),
    )  # fmt: skip


def _equal_sides() -> Action:
    return Action(
        what="make versions, block size and layout equal on both sides; let failed loads fail and "
        "the router retry",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="clients see errors instead of slow answers",
        verify="stepscope diagnose --since 10m",
        revert="the policy as it was",
    )


ALERT = Alert(
    rule=ID,
    severity=Severity.high,
    expr="increase(vllm:nixl_num_failed_transfers_total[5m]) > 0",
    summary="Loads of KV blocks fail",
    description=f'{{{{ $value | printf "%.0f" }}}} transfers failed in 5 minutes. {ENGINE}',
    queries=("scraped-load", "loads-by-tier"),
)
