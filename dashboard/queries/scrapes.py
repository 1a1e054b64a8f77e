"""What the chart of a scraped engine needs: the scrapes, or the extremes of stretches of them."""

from __future__ import annotations

from dashboard.queries.reduction import MAX_STOPS, bin_of, x_of
from diagnose.reading import Scope
from diagnose.scrapes.metric_facts import Source


def load(scope: Scope, source: Source, most: int = MAX_STOPS) -> str:
    """Returns a row a scrape; where there are more than `most`, one a stretch, at its highest.

    Columns: `x` (ms since the window's start, of the last scrape in it), `running`, `waiting`,
    `used`, `preempted` (increase over the stretch), `num_scrapes`.
    """
    stretch = max(1, -(-scope.duration_ns // most))
    return f"""
SELECT max({x_of(scope)}) AS x, max(num_running) AS running, max(num_waiting) AS waiting,
       max(kv_cache_usage_ratio) AS used, sum(num_preemptions)::BIGINT AS preempted,
       count(*) AS num_scrapes
FROM metric_intervals_between({scope.start_ts}, {scope.end_ts})
WHERE engine = {scope.engine} AND source = '{source}'
GROUP BY {bin_of(stretch)}
ORDER BY x
""".strip()
