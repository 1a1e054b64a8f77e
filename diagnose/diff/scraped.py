"""The quantities of a side that is known by scrapes or log lines alone.

Gauges are means over the scrapes, counters sums over the intervals between them; intervals in which
a counter fell are left out. Names are those of `recorded`, so that the two can be compared.
"""

from __future__ import annotations

import numpy as np

from diagnose.diff.noise import Floats, Ints, Measured, Ratio, summed
from diagnose.diff.side import NUM_STRETCHES, Side
from diagnose.scrapes.metric_facts import MetricFacts

Name = tuple[str, str, str]

GAUGES: dict[Name, str] = {
    ("waiting", "waiting requests", "requests"): "num_waiting",
    ("memory", "KV blocks in use, of the pool", "ratio"): "kv_cache_usage_ratio",
    ("traffic", "running requests", "requests"): "num_running",
}
RATES: dict[Name, str] = {
    ("preemptions", "preemptions per second", "1/s"): "num_preemptions",
    ("throughput", "output tokens per second", "1/s"): "num_generation_tokens",
    ("throughput", "requests ended per second", "1/s"): "num_finished",
}


def quantities(side: Side, facts: MetricFacts) -> dict[Name, Measured | None]:
    """Returns every quantity that scrapes have, by group, name and unit."""
    stretches = _stretches(side, facts)
    told: dict[Name, Measured | None] = {
        name: _mean(facts.columns[column], stretches) for name, column in GAUGES.items()
    }
    seconds = facts.interval_ns / 1e9
    told |= {
        name: _over(facts.columns[column], seconds, stretches, is_count=True)
        for name, column in RATES.items()
    }
    told["preemptions", "preemptions per finished request", ""] = _over(
        facts.columns["num_preemptions"], facts.columns["num_finished"], stretches
    )
    told["traffic", "requests in the engine", "requests"] = _mean(facts.in_flight.values, stretches)
    told["traffic", "prompt tokens found in the prefix cache", "ratio"] = _over(
        facts.columns["num_prefix_hits"], facts.columns["num_prefix_queries"], stretches
    )
    return told


def _stretches(side: Side, facts: MetricFacts) -> Ints:
    places = (facts.ts - side.scope.start_ts) // side.stretch_ns
    return np.clip(places, 0, NUM_STRETCHES - 1).astype(np.int64)


def _mean(values: Floats, stretches: Ints) -> Measured | None:
    known = np.isfinite(values)
    return _over(values[known], np.ones(int(known.sum())), stretches[known])


def _over(
    above: Floats, below: Floats, stretches: Ints, *, is_count: bool = False
) -> Measured | None:
    """Returns the sum of one over the sum of the other, over scrapes that have both."""
    known = np.isfinite(above) & np.isfinite(below)
    if not known.any():
        return None
    sums = [summed(stretches[known], part[known]) for part in (above, below)]
    num = int(sums[0].sum()) if is_count else int(known.sum())
    return Ratio(sums[0], sums[1], num, is_count=is_count)
