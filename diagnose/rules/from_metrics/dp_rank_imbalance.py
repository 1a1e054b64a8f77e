"""dp-rank-imbalance, from scrapes alone.

An engine beside the others of its model: eight or more requests waiting on it, on average, and four
times the median of the others; or four times their median running. Each is compared over the time
in which both were scraped, a minute or longer.
"""

from __future__ import annotations

from typing import Any

from diagnose.alerts.alert import ENGINE, RUNNING, WAITING, Alert, seconds
from diagnose.finding import (
    Cause,
    Evidence,
    Finding,
    Healthy,
    Impact,
    RuleVerdict,
    Severity,
)
from diagnose.rule import Context, Earlier
from diagnose.rules.dp_rank_imbalance import (
    ID,
    MIN_LASTED_NS,
    MIN_RATIO,
    MIN_WAITING,
    RULE,
    balance,
    beside_too_shortly,
    compared,
    is_heavier,
    peers_sql,
    sentence_of,
)
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, too_few
from diagnose.scrapes.metric_finding import span_of_window as whole

LOADS = """
SELECT engine, ts, num_waiting, num_running, 1 AS weight
FROM metric_intervals_between({{start}}, {{end}}) WHERE source = '{source}'
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where this engine has far more than its peers."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_running", "num_waiting"):
        return not_measured(ID, missing)
    sql = peers_sql(LOADS.format(source=facts.source))
    row = context.row(sql)
    if not row["num_others"]:
        return not_measured(ID, ("samples.engine",), "one engine of this model is in the log")
    if not row["num_compared"]:
        return not_measured(ID, ("samples",), beside_too_shortly(row))
    if not is_heavier(row):
        return Healthy(rule=ID, name="ranks", number=compared(row))
    return _finding(context, facts, row, sql)


def _finding(context: Context, facts: MetricFacts, row: dict[str, Any], sql: str) -> Finding:
    others = row["num_compared"]
    statement = context.scope.fill(sql)
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=whole(facts),
        sentence=sentence_of(row),
        symptom=f"{row['own_waiting']:.1f} waiting here, others {row['waiting']:.1f}",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: the balancer's counts, its weights or affinity on purpose",
        ),
        confidence=("medium", f"means over the window, other engines: {others}"),
        rejected=ruled_out(("too much load", f"others have {row['waiting']:.1f} waiting")),
        evidence=(
            Evidence(
                name="requests waiting, mean",
                value=round(row["own_waiting"], 1),
                unit="requests",
                threshold=MIN_WAITING,
                baseline=round(row["waiting"], 1),
                n=facts.num_scrapes,
                sql=statement,
            ),
            Evidence(
                name="requests running, mean",
                value=round(row["own_running"], 1),
                unit="requests",
                baseline=round(row["running"], 1),
                n=facts.num_scrapes,
                sql=statement,
            ),
        ),
        impact=Impact(
            cost=(f"{row['own_waiting']:.0f} requests wait here while others have room",),
            numbers=(("mean_waiting", round(row["own_waiting"], 1)),),
        ),
        actions=(balance(),),
    )


_WAITING = "stepscope:num_waiting_beside_others"
_RUNNING = "stepscope:num_running_beside_others"


def _mean(gauge: str) -> str:
    return f"avg_over_time({gauge}[5m])\n  and {gauge}\n  and {gauge} offset 5m\n"


def _heavier(mean: str, least: str, others: str = "") -> str:
    # PromQL has no median of all but one. Of the others of the heaviest it is the median of all and
    # one more that has nothing: that one moves the middle down as far as the heaviest moves it up.
    one_idle = f"0 * min by (model_name) ({mean})"
    median = f"quantile by (model_name) (0.5, {mean} or {one_idle})"
    return f"({mean} {least})\n  >= on (model_name) group_left () ({MIN_RATIO} * {median}{others})"


RECORDS = {_WAITING: _mean(WAITING), _RUNNING: _mean(RUNNING)}
"""Means of engines that are here now and were five minutes ago."""

ALERT = Alert(
    rule=ID,
    severity=Severity.high,
    hold=seconds(MIN_LASTED_NS),
    expr=f"""
{_heavier(_WAITING, f">= {MIN_WAITING}")}
or
{_heavier(_RUNNING, f"> {MIN_RATIO}", " > 0")}
""",
    summary="One engine has most of the requests while its peers have room",
    description='{{ $value | printf "%.0f" }} requests wait or run here on average, '
    f"{MIN_RATIO} times the median of the other engines of this model or more. {ENGINE}",
    queries=("scraped-load",),
)
