"""dp-rank-imbalance, from scrapes alone.

Engines of the same model that were scraped in the same window: eight or more requests waiting on
one, on average, and four times the median of all; or four times the median running. For a minute or
longer.
"""

from __future__ import annotations

from typing import Any

from diagnose.alerts.alert import ENGINE, Alert, seconds
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
    is_heavier,
)
from diagnose.saying import not_measured, ruled_out
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of, found, too_few
from diagnose.scrapes.metric_finding import span_of_window as whole
from diagnose.words import duration

PEERS_SQL = """
WITH models AS (SELECT engine, any_value(model) AS model FROM engines GROUP BY engine),
loads AS (
    SELECT m.engine, avg(m.num_waiting) AS waiting, avg(m.num_running) AS running
    FROM metric_intervals_between({{start}}, {{end}}) AS m JOIN models AS e USING (engine)
    WHERE m.source = '{source}'
      AND e.model IS NOT DISTINCT FROM (SELECT model FROM models WHERE engine = {{engine}})
    GROUP BY m.engine
)
SELECT count(*) AS num_engines,
       median(waiting) AS waiting, median(running) AS running,
       max(waiting) FILTER (engine = {{engine}}) AS own_waiting,
       max(running) FILTER (engine = {{engine}}) AS own_running
FROM loads
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where this engine has far more than its peers."""
    facts = facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    if missing := facts.missing("num_running", "num_waiting"):
        return not_measured(ID, missing)
    sql = PEERS_SQL.format(source=facts.source)
    row = context.row(sql)
    if row["num_engines"] < 2:
        return not_measured(ID, ("samples.engine",), "one engine of this model is in the log")
    lasted = int(facts.ts[-1] - facts.ts[0])
    if lasted < MIN_LASTED_NS:
        why = f"watched for {duration(lasted)}, {duration(MIN_LASTED_NS)} are needed"
        return not_measured(ID, ("samples",), why)
    if not is_heavier(row):
        number = f"{row['own_waiting']:.1f} waiting, median {row['waiting']:.1f}"
        return Healthy(rule=ID, name="ranks", number=f"{number} of {row['num_engines']} engines")
    return _finding(context, facts, row, sql)


def _finding(context: Context, facts: MetricFacts, row: dict[str, Any], sql: str) -> Finding:
    others = row["num_engines"] - 1
    statement = context.scope.fill(sql)
    return found(
        context,
        RULE,
        severity=Severity.high,
        span=whole(facts),
        sentence=f"This engine has {row['own_waiting']:.1f} waiting and {row['own_running']:.1f} "
        f"running on average, the median of {row['num_engines']} engines is {row['waiting']:.1f} "
        f"and {row['running']:.1f}",
        symptom=f"{row['own_waiting']:.1f} waiting here, median {row['waiting']:.1f}",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: the balancer's counts, its weights or affinity on purpose",
        ),
        confidence=("medium", f"means over the window, against {others} other engines"),
        rejected=ruled_out(("too much load", f"median {row['waiting']:.1f} waiting")),
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


def _heavier(gauge: str, least: str) -> str:
    mean = f"avg_over_time({gauge}[5m])"
    median = f"quantile by (model_name) (0.5, {mean})"
    return f"({mean} {least})\n  >= on (model_name) group_left () ({MIN_RATIO} * {median})"


ALERT = Alert(
    rule=ID,
    severity=Severity.high,
    hold=seconds(MIN_LASTED_NS),
    expr=f"""
{_heavier("vllm:num_requests_waiting", f">= {MIN_WAITING}")}
or
{_heavier("vllm:num_requests_running", f"> {MIN_RATIO}")}
""",
    summary="One engine has most of the requests while its peers have room",
    description='{{ $value | printf "%.0f" }} requests wait or run here on average, '
    f"{MIN_RATIO} times the median of the engines of this model or more. {ENGINE}",
    queries=("scraped-load",),
)
