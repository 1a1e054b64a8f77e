"""spec-decode-unprofitable: hardly any guess is right.

What it measures
----------------
Accepted tokens for each drafted one, over all intervals.

Why it matters
--------------
Each rejected draft is a token computed for nothing. With large batches the device has no time to
spare for it, and output is slower than without speculation.

When it stays quiet
-------------------
Acceptance alone is no proof: at a batch of one, 20 % may pay, and at 600 running requests 60 % may
not. The rule only says what is surely too little; a comparison with speculation off decides the
rest.

What to do
----------
Fewer drafts a step, another proposer, or speculation off above the batch at which it broke even.

Source
------
Report of n-grams proposed on the device under asynchronous scheduling: 1.2 % accepted, 11 % less
output. 20 %: the playbook's starting value; 1,000 drafts: starting value.
"""

from __future__ import annotations

from diagnose.finding import Action, Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.metric_facts import MetricFacts
from diagnose.metric_finding import facts_of, found, number, too_few
from diagnose.metric_finding import span_of_window as whole
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import not_measured
from diagnose.words import count, percent

ID = "spec-decode-unprofitable"

MIN_ACCEPTED = 0.2
"""Accepted for each drafted token. Source: playbook."""
MIN_DRAFTED = 1000
"""Drafted tokens needed to judge. Starting value."""


def decide_metrics(context: Context, earlier: Earlier) -> RuleVerdict:
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


RULE = Rule(id=ID, version=1, prefix="sdu", page=__doc__ or "", decide_metrics=decide_metrics)
