"""guard-light-preemption: requests were preempted, but nobody could tell.

What it measures
----------------
The worst episode of preemptions for want of KV blocks: the share of requests that were evicted, how
often the unluckiest was, and whether the tail of pauses grew: the 99th percentile of each request's
longest pause between two tokens, over all requests against those that were never evicted.

Why it matters
--------------
A pool that is used to its last block preempts now and then. That is what it was bought for. An
alarm on every preemption teaches people to ignore the alarm that counts.

When it stays quiet
-------------------
Without preemptions it says nothing. It does not apply once a tenth of the requests are evicted, one
is evicted more than five times, or the tail of pauses grows by a quarter. Where pauses are not
recorded, the two counts decide, and the confidence says so.

What to do
----------
Nothing. Look again if the share grows.

Source
------
Thresholds are the playbook's starting values for this guard.
"""

from __future__ import annotations

from diagnose.finding import Cause, Confidence, Evidence, Finding, Severity
from diagnose.rule import Context, Earlier, Rule
from diagnose.storm import Storm
from diagnose.words import count, plural

ID = "guard-light-preemption"

MAX_AFFECTED_RATIO = 0.10
"""Share of requests evicted. Source: playbook."""
MAX_TIMES = 5
"""Evictions of one request. Source: playbook."""
MAX_TAIL_RATIO = 1.25
"""Growth of the tail of pauses. Source: playbook."""


def is_light(storm: Storm) -> bool:
    """Whether an episode is too small to be felt."""
    ratio = storm.pauses.tail_ratio
    return (
        storm.affected_ratio < MAX_AFFECTED_RATIO
        and storm.account.max_times <= MAX_TIMES
        and (ratio is None or ratio <= MAX_TAIL_RATIO)
    )


def decide(context: Context, earlier: Earlier) -> Finding | None:
    """Returns an informational finding where preemptions are harmless; else `None`."""
    storm = context.storm
    if storm is None or not is_light(storm):
        return None
    account = storm.account
    evicted = f"{account.num_affected:,} of {plural(account.num_requests, 'request')}"
    sentence = f"{evicted} {_were(account.num_affected)} evicted, and no answer paused longer."
    measured = storm.pauses.tail_ratio is not None
    if not measured:
        sentence = f"{evicted} {_were(account.num_affected)} evicted; pauses are not recorded."
    return Finding(
        id=RULE.new_id(context),
        rule=ID,
        rule_version=RULE.version,
        severity=Severity.info,
        confidence=Confidence(
            level="high" if measured else "medium",
            why="pauses of all finished requests" if measured else "pauses are not recorded",
        ),
        span=storm.span,
        engine=context.scope.engine,
        sentence=sentence,
        symptom=f"{count(account.num_from_kv)} preemptions for want of KV blocks",
        cause=Cause(
            kind="undetermined", sentence="undetermined: too few preemptions to name a change"
        ),
        evidence=_evidence(storm),
        affected=account.victims,
        num_affected=account.num_affected,
        missing=() if measured else ("request_finishes.max_itl_ns",),
        data_quality=context.data_quality,
    )


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _evidence(storm: Storm) -> tuple[Evidence, ...]:
    account, pauses = storm.account, storm.pauses
    return (
        Evidence(
            name="requests evicted",
            value=storm.affected_ratio,
            unit="ratio",
            threshold=MAX_AFFECTED_RATIO,
            n=account.num_requests,
            sql=account.sql,
        ),
        Evidence(
            name="most evictions of one request",
            value=account.max_times,
            unit="times",
            threshold=MAX_TIMES,
            n=account.num_affected,
            sql=account.sql,
        ),
        Evidence(
            name="tail of longest pauses, all against never evicted",
            value=pauses.tail_ratio,
            unit="x",
            threshold=MAX_TAIL_RATIO,
            n=pauses.num_evicted + pauses.num_calm,
            sql=storm.pauses_sql,
        ),
    )


RULE = Rule(
    id=ID,
    version=1,
    prefix="glp",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("kv-preemption-thrash",),
)
