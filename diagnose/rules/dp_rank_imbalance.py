"""dp-rank-imbalance: one engine queues while its peers have room.

What it measures
----------------
An engine beside the others of its model: eight or more requests waiting on it, on average, and four
times the median of the others; or four times their median running. Each other engine is compared
over the time in which both were there, a minute or longer. The engine itself is not part of the
median, so two ranks are enough. An engine that has nothing to do counts as an empty one.

Why it matters
--------------
The load balancer sends too much to one rank or pod. Its users wait, its cache evicts, and the sum
over all engines looks fine.

When it stays quiet
-------------------
With one engine in the log there is nothing to compare, nor with the engine that it was before a
restart. Where nobody waits and the others run nothing at all, they are a standby. Affinity on
purpose looks the same as a fault; a rank that hangs collects requests too, so look at `worker-hang`
of that engine first.

What to do
----------
Let the balancer count requests itself, publish its counts more often, break ties at random, weigh
by KV usage.

Source
------
Reports of eight ranks of which two took most of the queue, and of pods that scored the same while a
burst went to one. Eight, four and 60 s: the playbook's starting values.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Action, Cause, Finding, Impact, RuleVerdict, Severity, Span
from diagnose.reading import NS
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, lacking, measured, not_measured, ruled_out, unused
from diagnose.words import duration

ID = "dp-rank-imbalance"

MIN_WAITING = 8
"""Requests waiting on the engine, on average. Source: playbook."""
MIN_RATIO = 4
"""Against the median of the other engines. Source: playbook, which leaves open of which engines;
with the engine itself in it a rank of two could never be four times as high."""
MIN_LASTED_NS = 60 * NS
"""How long both have to be there. Source: playbook."""

OTHERS_SQL = """
SELECT count(DISTINCT engine) AS num_others FROM engines
WHERE engine <> {engine}
  AND model IS NOT DISTINCT FROM (SELECT any_value(model) FROM engines WHERE engine = {engine})
"""
LOADS = """
SELECT engine, ts, num_waiting, num_running, num_repeats AS weight FROM steps
WHERE ts BETWEEN {start} AND {end}
UNION ALL
SELECT engine, ts, NULL, NULL, NULL FROM heartbeats WHERE ts BETWEEN {start} AND {end}
"""
"""Who was there when, with how many; an engine without work beats and takes no step."""
PEERS_SQL = """
WITH models AS (SELECT engine, any_value(model) AS model FROM engines GROUP BY engine),
loads AS MATERIALIZED ({loads}),
spans AS (
    SELECT engine, min(ts) AS first_ts, max(ts) AS last_ts
    FROM loads JOIN models USING (engine)
    WHERE model IS NOT DISTINCT FROM (SELECT model FROM models WHERE engine = {{engine}})
    GROUP BY engine
),
pairs AS (
    SELECT other.engine AS other, greatest(own.first_ts, other.first_ts) AS first_ts,
           least(own.last_ts, other.last_ts) AS last_ts
    FROM spans AS own JOIN spans AS other ON other.engine <> own.engine
    WHERE own.engine = {{engine}}
),
means AS (
    SELECT p.other, l.engine = {{engine}} AS is_own, count(l.num_waiting) AS num_rows,
           coalesce(sum(l.num_waiting * l.weight) / sum(l.weight), 0) AS waiting,
           coalesce(sum(l.num_running * l.weight) / sum(l.weight), 0) AS running
    FROM pairs AS p JOIN loads AS l
      ON l.engine IN (p.other, {{engine}}) AND l.ts BETWEEN p.first_ts AND p.last_ts
    WHERE p.last_ts - p.first_ts >= {least}
    GROUP BY ALL
)
SELECT (SELECT count(*) FROM pairs) AS num_others,
       (SELECT max(last_ts - first_ts) FROM pairs) AS lasted_ns,
       count(*) FILTER (NOT is_own) AS num_compared,
       median(waiting) FILTER (NOT is_own) AS waiting,
       median(running) FILTER (NOT is_own) AS running,
       median(waiting) FILTER (is_own) AS own_waiting,
       median(running) FILTER (is_own) AS own_running,
       coalesce(max(num_rows) FILTER (is_own), 0) AS num_rows
FROM means
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where this engine has far more than its peers."""
    lacks = lacking(context, ID, "steps", "num_running", "num_waiting")
    if lacks is not None:
        return lacks
    sql = peers_sql(LOADS)
    row = context.row(sql) if context.row(OTHERS_SQL)["num_others"] else None
    if row is None or not row["num_others"]:
        return unused(ID, "ranks", "one engine of this model")
    if not row["num_compared"]:
        return not_measured(ID, ("steps",), beside_too_shortly(row))
    if not is_heavier(row):
        return healthy(ID, "ranks", compared(row))
    return _finding(context, row, sql)


def peers_sql(loads: str) -> str:
    """Returns the statement that compares an engine with the others of its model.

    Args:
        loads: a statement of engine, ts, num_waiting, num_running and weight.
    """
    return PEERS_SQL.format(loads=loads.strip(), least=MIN_LASTED_NS)


def is_heavier(row: dict[str, Any]) -> bool:
    """Whether an engine's own means are far above the medians of the others."""
    queues = row["own_waiting"] >= MIN_WAITING and row["own_waiting"] >= MIN_RATIO * row["waiting"]
    runs = row["own_running"] > MIN_RATIO and row["own_running"] >= MIN_RATIO * row["running"]
    return bool(queues or (runs and row["running"] > 0))


def compared(row: dict[str, Any]) -> str:
    """Returns what waits here and on the others."""
    return f"{row['own_waiting']:.1f} waiting, {_median(row)} {row['waiting']:.1f}"


def beside_too_shortly(row: dict[str, Any]) -> str:
    """Returns for how long the others were there, and how long they would have to be."""
    lasted = duration(max(row["lasted_ns"], 0))
    return f"beside another engine for {lasted}, {duration(MIN_LASTED_NS)} are needed"


def sentence_of(row: dict[str, Any]) -> str:
    """Returns what is uneven, in a sentence."""
    return (
        f"This engine has {row['own_waiting']:.1f} waiting and {row['own_running']:.1f} running on "
        f"average, {_median(row)} {row['waiting']:.1f} and {row['running']:.1f}"
    )


def _median(row: dict[str, Any]) -> str:
    if row["num_compared"] == 1:
        return "the other engine"
    return f"the median of {row['num_compared']} others is"


def _finding(context: Context, row: dict[str, Any], template: str) -> Finding:
    sql, others = context.scope.fill(template), row["num_compared"]
    first = context.steps.first_ts or context.scope.start_ts
    stopped = context.quality.stopped_ts
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=Span(opened_ts=first, cleared_ts=stopped),
        sentence=sentence_of(row),
        symptom=f"{row['own_waiting']:.1f} waiting here, others {row['waiting']:.1f}",
        cause=Cause(
            kind="undetermined",
            sentence="undetermined: the balancer's counts, its weights or affinity on purpose",
        ),
        confidence=("medium", f"means over the window, other engines: {others}"),
        rejected=ruled_out(("too much load", f"others have {row['waiting']:.1f} waiting")),
        evidence=(
            measured(
                "requests waiting, mean", round(row["own_waiting"], 1), "requests", sql,
                threshold=MIN_WAITING, baseline=round(row["waiting"], 1), n=row["num_rows"],
            ),
            measured(
                "requests running, mean", round(row["own_running"], 1), "requests", sql,
                baseline=round(row["running"], 1), n=row["num_rows"],
            ),
        ),
        impact=Impact(
            cost=(f"{row['own_waiting']:.0f} requests wait here while others have room",),
            numbers=(("mean_waiting", round(row["own_waiting"], 1)),),
        ),
        actions=(balance(),),
    )  # fmt: skip


def balance() -> Action:
    """Returns what makes a balancer spread requests more evenly."""
    return advise(
        "let the balancer count what it sends itself, and break ties at random",
        applies="client",
        trade_off="less affinity: fewer prefix cache hits",
        revert="the balancer as it was",
    )


RULE = Rule(
    id=ID,
    version=3,
    prefix="dpi",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("worker-hang", "admission-deadlock"),
)
