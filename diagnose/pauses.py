"""What preemptions did to those who waited for answers: the evicted beside the others."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.reading import QueryLog, Scope, read_row

PAUSES_SQL = """
SELECT count(max_itl_ns) FILTER (num_preemptions > 0) AS num_evicted,
       count(max_itl_ns) FILTER (num_preemptions = 0) AS num_calm,
       (quantile_cont(max_itl_ns, 0.95) FILTER (num_preemptions > 0))::BIGINT AS evicted_p95_ns,
       (quantile_cont(max_itl_ns, 0.95) FILTER (num_preemptions = 0))::BIGINT AS calm_p95_ns,
       quantile_cont(max_itl_ns, 0.99)::BIGINT AS all_p99_ns,
       (quantile_cont(max_itl_ns, 0.99) FILTER (num_preemptions = 0))::BIGINT AS calm_p99_ns,
       (quantile_cont(e2e_ns, 0.95) FILTER (num_preemptions > 0))::BIGINT AS evicted_e2e_p95_ns,
       (quantile_cont(e2e_ns, 0.95) FILTER (num_preemptions = 0))::BIGINT AS calm_e2e_p95_ns
FROM requests
WHERE engine = {engine} AND finished_ts BETWEEN {start} AND {end}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Longest pauses inside answers, and whole answers, of requests that ended in a stretch.

    `evicted` are those that were preempted, `calm` the others. `None` where no such request ended.
    """

    num_evicted: int
    num_calm: int
    evicted_p95_ns: int | None
    calm_p95_ns: int | None
    all_p99_ns: int | None
    calm_p99_ns: int | None
    evicted_e2e_p95_ns: int | None = None
    calm_e2e_p95_ns: int | None = None

    @property
    def tail_ratio(self) -> float | None:
        """p99 of all requests' longest pauses, as a multiple of that of those never evicted."""
        if self.all_p99_ns is None or not self.calm_p99_ns:
            return None
        return self.all_p99_ns / self.calm_p99_ns


def read_pauses(log: QueryLog, scope: Scope) -> Pauses:
    """Returns the pauses of the requests that ended in a stretch."""
    return Pauses(**read_row(log, scope.fill(PAUSES_SQL)))
