"""guard-kv-high-healthy: a KV pool that is nearly full and harms nobody.

What it measures
----------------
KV usage of 90 % and more while no preemption was counted and nobody waited. From the slope it says
when the pool would be full.

Why it matters
--------------
A cache is bought to be used. An alarm on usage alone wakes people for long answers that go well.

When it stays quiet
-------------------
With a preemption or a waiting request it says nothing: then the rules for those judge.

What to do
----------
Nothing; the forecast says when to look again.

Source
------
Report of eight long answers on a pool 95 % full, at an even pace. 90 %: the playbook's starting
value.
"""

from __future__ import annotations

import numpy as np

from diagnose.finding import Suppressed
from diagnose.rule import Context, Earlier, Rule
from diagnose.scrapes.metric_facts import MetricFacts
from diagnose.scrapes.metric_finding import facts_of
from diagnose.words import duration, percent

ID = "guard-kv-high-healthy"

HIGH_KV = 0.9
"""KV gauge from which it is worth a word. Source: playbook."""


SLOPE_SQL = """
SELECT min(num_blocks_free) AS free, max(ts) AS last_ts,
       arg_max(num_blocks_free, ts) AS last_free, regr_slope(-num_blocks_free, ts) AS slope
FROM kv_pressure WHERE {where}
"""


def decide(context: Context, earlier: Earlier) -> Suppressed | None:
    """Returns the same of a step record."""
    steps, pool = context.steps, context.settings.num_usable_blocks
    if pool is None or steps.min_free_blocks is None or steps.max_waiting != 0:
        return None
    used = 1 - steps.min_free_blocks / pool
    if used < HIGH_KV or context.accounting.num_rows:
        return None
    seen = context.row(SLOPE_SQL)
    number = f"KV up to {percent(used)}, 0 preemptions, nobody waited"
    if seen["slope"] and seen["slope"] > 0 and seen["last_free"]:
        number += f"; at this pace full in {duration(seen['last_free'] / seen['slope'])}"
    return Suppressed(rule=None, by=ID, number=number)


def decide_metrics(context: Context, earlier: Earlier) -> Suppressed | None:
    """Returns how full the pool is and when it would be; `None` where that may hurt somebody."""
    facts = facts_of(context)
    usage, waiting = facts["kv_cache_usage_ratio"], facts["num_waiting"]
    if not facts.has_enough or usage.max is None or usage.max < HIGH_KV:
        return None
    if waiting.max != 0 or facts["num_preemptions"].sum != 0:
        return None
    number = f"KV up to {percent(usage.max)}, 0 preemptions counted, nobody waiting"
    return Suppressed(rule=None, by=ID, number=number + _forecast(facts))


def _forecast(facts: MetricFacts) -> str:
    usage = facts["kv_cache_usage_ratio"].values
    known = np.isfinite(usage)
    if known.sum() < 2:
        return ""
    slope = float(
        np.polyfit((facts.ts[known] - facts.ts[0]).astype(np.float64), usage[known], 1)[0]
    )
    if slope <= 0 or facts.ts[-1] == facts.ts[0]:
        return ""
    left = (1 - float(usage[known][-1])) / slope
    return f"; at this pace full in {duration(left)}"


RULE = Rule(
    id=ID,
    version=2,
    prefix="gkh",
    page=__doc__ or "",
    decide=decide,
    decide_metrics=decide_metrics,
)
