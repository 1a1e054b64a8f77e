"""Requests that come and go: one by one, or counted per bin."""

from __future__ import annotations

from dashboard.queries.reduction import MAX_MARKS, bin_of, x_of, x_of_bin
from diagnose.reading import Scope


def arrivals(scope: Scope) -> str:
    """Returns a row an arrival and a row an end."""
    return f"""
SELECT {x_of(scope)} AS x, 'arrived' AS kind, request FROM request_arrivals
WHERE {scope.where()}
UNION ALL
SELECT {x_of(scope)}, 'finished', request FROM request_finishes
WHERE {scope.where()}
ORDER BY x
LIMIT {2 * MAX_MARKS + 1}
""".strip()


def arrivals_per_bin(scope: Scope, length_ns: int) -> str:
    """Returns how many came and went in each bin."""
    number = bin_of(length_ns)
    return f"""
SELECT {x_of_bin(scope, length_ns, number)} AS x, kind, count(*) AS n
FROM (
  SELECT ts, 'arrived' AS kind FROM request_arrivals WHERE {scope.where()}
  UNION ALL
  SELECT ts, 'finished' FROM request_finishes WHERE {scope.where()}
)
GROUP BY ALL ORDER BY x
""".strip()
