"""dp-rank-imbalance: one engine queues while its peers have room.

What it measures
----------------
Engines of the same model that were recorded in the same window: eight or more requests waiting on
one, on average, and four times the median of all; or four times the median running. For a minute or
longer.

Why it matters
--------------
The load balancer sends too much to one rank or pod. Its users wait, its cache evicts, and the sum
over all engines looks fine.

When it stays quiet
-------------------
With one engine in the log it is not measured. Affinity on purpose looks the same; a rank that hangs
collects requests too, so look at `worker-hang` of that engine first.

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
"""Against the median of all engines. Source: playbook."""
MIN_LASTED_NS = 60 * NS
"""How long it has to be watched. Source: playbook."""

PEERS_SQL = """
WITH models AS (SELECT engine, any_value(model) AS model FROM engines GROUP BY engine),
loads AS (
    SELECT s.engine, max(s.ts) - min(s.ts) AS lasted_ns, count(*) AS num_rows,
           sum(s.num_waiting * s.num_repeats) / sum(s.num_repeats) AS waiting,
           sum(s.num_running * s.num_repeats) / sum(s.num_repeats) AS running
    FROM steps AS s JOIN models AS m USING (engine)
    WHERE s.ts BETWEEN {start} AND {end}
      AND m.model IS NOT DISTINCT FROM (SELECT model FROM models WHERE engine = {engine})
    GROUP BY s.engine
)
SELECT count(*) AS num_engines, median(waiting) AS waiting, median(running) AS running,
       max(waiting) FILTER (engine = {engine}) AS own_waiting,
       max(running) FILTER (engine = {engine}) AS own_running,
       max(lasted_ns) FILTER (engine = {engine}) AS lasted_ns,
       max(num_rows) FILTER (engine = {engine}) AS num_rows
FROM loads
"""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where this engine has far more than its peers."""
    lacks = lacking(context, ID, "steps", "num_running", "num_waiting")
    if lacks is not None:
        return lacks
    row = context.row(PEERS_SQL)
    if row["num_engines"] < 2:
        return unused(ID, "ranks", "one engine of this model")
    if (row["lasted_ns"] or 0) < MIN_LASTED_NS:
        why = f"watched for {duration(row['lasted_ns'])}, {duration(MIN_LASTED_NS)} are needed"
        return not_measured(ID, ("steps",), why)
    if not is_heavier(row):
        number = f"{row['own_waiting']:.1f} waiting, median {row['waiting']:.1f}"
        return healthy(ID, "ranks", f"{number} of {row['num_engines']} engines")
    return _finding(context, row)


def is_heavier(row: dict[str, Any]) -> bool:
    """Whether an engine's own means are far above the medians of all."""
    queues = row["own_waiting"] >= MIN_WAITING and row["own_waiting"] >= MIN_RATIO * row["waiting"]
    runs = row["own_running"] > MIN_RATIO and row["own_running"] >= MIN_RATIO * row["running"]
    return bool(queues or runs)


def _finding(context: Context, row: dict[str, Any]) -> Finding:
    sql, others = context.scope.fill(PEERS_SQL), row["num_engines"] - 1
    first = context.steps.first_ts or context.scope.start_ts
    stopped = context.quality.stopped_ts
    return finding(
        context,
        RULE,
        severity=Severity.high,
        span=Span(opened_ts=first, cleared_ts=stopped),
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
    version=2,
    prefix="dpi",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("worker-hang", "admission-deadlock"),
)
