"""pd-producer-lease-expiry, from scrapes alone.

The increase of the connector's counter of requests whose KV blocks expired unread.
"""

from __future__ import annotations

from diagnose.alerts.alert import ENGINE, Alert
from diagnose.finding import Action, Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.log_evidence import LogEvidence, log_evidence
from diagnose.rule import Context, Earlier
from diagnose.rules.pd_producer_lease_expiry import ID, RULE
from diagnose.saying import not_measured, ruled_out, undetermined
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, number, rises_of, too_few
from diagnose.words import count, plural


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a lease expired."""
    facts = facts_of(context)
    lines = log_evidence(context, "kv_lease_expired")
    if lines is not None and facts.missing("num_expired_requests"):
        return _told_by_its_log(context, lines)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_expired_requests"):
        return not_measured(ID, missing, "no such counter of a connector is scraped")
    expired = facts["num_expired_requests"].sum
    if not expired:
        return Healthy(rule=ID, name="expired leases", number="0")
    return _finding(context, facts, expired)


def _told_by_its_log(context: Context, lines: LogEvidence) -> Finding:
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=lines.span,
        sentence="KV blocks expired before they were fetched, as the engine's log says",
        symptom=f"{plural(lines.num, 'line')} of it in the engine's log",
        cause=undetermined("the line does not say why"),
        confidence=("high", "the engine's own words"),
        evidence=(lines.evidence("lines of expired leases"),),
        actions=(_longer_lease(),),
        missing=facts_of(context).missing("num_expired_requests"),
        told_by=lines.told_by,
    )


def _finding(context: Context, facts: MetricFacts, expired: int) -> Finding:
    failed = facts["num_failed_transfers"].sum
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=rises_of(facts, "num_expired_requests"),
        sentence=f"The KV blocks of {plural(expired, 'request')} expired before they were fetched",
        symptom=f"{plural(expired, 'lease')} of KV blocks expired",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: an abort, a refusal or a late read; no scrape tells which",
        ),
        confidence=("high", "the connector counts them"),
        rejected=ruled_out(
            ("failed transfers", "not measured" if failed is None else f"{failed:,} counted"),
        ),
        evidence=(
            number(
                facts, "requests whose KV expired", expired, "requests",
                "sum(num_expired_requests)::BIGINT", threshold=0,
            ),
        ),
        impact=Impact(
            cost=(f"{count(expired)} prefills thrown away, or read after they were let go",),
            numbers=(("num_expired_requests", expired),),
        ),
        actions=(_longer_lease(),),
        missing=("request_finishes.reason",),
    )  # fmt: skip


def _longer_lease() -> Action:
    return Action(
        what="make the connector's lease longer than queueing and transfer at p99, and the "
        "router's time-out longer than a prefill",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="blocks of lost requests stay pinned for longer",
        verify="stepscope diagnose --since 10m",
        revert="the lease as it was",
    )


ALERT = Alert(
    rule=ID,
    severity=Severity.critical,
    expr="increase(vllm:nixl_num_kv_expired_reqs_total[5m]) > 0",
    summary="KV blocks expired before they were fetched",
    description='The blocks of {{ $value | printf "%.0f" }} requests expired in 5 minutes. '
    f"{ENGINE}",
    queries=("scraped-load", "unhappy-ends"),
)
