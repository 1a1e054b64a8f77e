"""spec-decode-unprofitable, from scrapes alone.

Accepted tokens for each drafted one, over all intervals.
"""

from __future__ import annotations

from diagnose.alerts.alert import ENGINE, Alert
from diagnose.finding import Action, Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.rule import Context, Earlier
from diagnose.rules.spec_decode_unprofitable import ID, MIN_ACCEPTED, MIN_DRAFTED, RULE
from diagnose.saying import not_measured
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, number, too_few
from diagnose.scrapes.metric_finding import span_of_window as whole
from diagnose.words import count, percent


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where most drafts are rejected."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_drafted_tokens", "num_accepted_tokens"):
        return not_measured(ID, missing, "no drafts are counted: off, or not scraped")
    drafted, accepted = facts["num_drafted_tokens"].sum, facts["num_accepted_tokens"].sum
    if not drafted or drafted < MIN_DRAFTED:
        why = f"{count(drafted)} tokens drafted, {MIN_DRAFTED:,} are needed"
        return not_measured(ID, ("token_work.num_rejected_draft_tokens",), why)
    ratio = (accepted or 0) / drafted
    if ratio >= MIN_ACCEPTED:
        return Healthy(rule=ID, name="drafts accepted", number=percent(ratio))
    return _finding(context, facts, drafted, ratio)


def _finding(context: Context, facts: MetricFacts, drafted: int, ratio: float) -> Finding:
    wasted = round(drafted * (1 - ratio))
    return found(
        context,
        RULE,
        severity=Severity.medium,
        span=whole(facts),
        sentence=f"{percent(ratio)} of {drafted:,} drafted tokens were right: they cost more "
        "than they bring",
        symptom=f"{wasted:,} drafted tokens were rejected",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: the proposer, or the text it guesses at",
        ),
        confidence=("medium", "whether it pays takes a comparison with speculation off"),
        evidence=(
            number(
                facts, "accepted for each drafted token", ratio, "ratio",
                "sum(num_accepted_tokens) / sum(num_drafted_tokens)", threshold=MIN_ACCEPTED,
                n=drafted,
            ),
        ),
        impact=Impact(
            cost=(f"{wasted:,} tokens computed for nothing",),
            numbers=(("num_rejected_tokens", wasted),),
        ),
        actions=(_compare(),),
        missing=("token_work.num_rejected_draft_tokens",),
    )  # fmt: skip


def _compare() -> Action:
    return Action(
        what="compare output with speculation off, then with fewer drafts a step",
        flag=None,
        old=None,
        new=None,
        applies="restart",
        trade_off="single requests may become slower",
        verify="stepscope diagnose --since 10m",
        revert="speculation as it was",
    )


_DRAFTED = "increase(vllm:spec_decode_num_draft_tokens_total[10m])"

ALERT = Alert(
    rule=ID,
    severity=Severity.medium,
    hold="5m",
    expr=f"""
increase(vllm:spec_decode_num_accepted_tokens_total[10m]) / {_DRAFTED} < {MIN_ACCEPTED}
  and {_DRAFTED} >= {MIN_DRAFTED}
""",
    summary="Most drafted tokens are rejected",
    description=f"{{{{ $value | humanizePercentage }}}} of the drafted tokens were right. {ENGINE}",
    queries=("scraped-load", "token-work"),
)
