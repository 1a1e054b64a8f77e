"""Why the admission of steps ended."""

from __future__ import annotations

from dashboard.queries.panels.states import QUIET_AFTER, first_x, since_step
from dashboard.queries.reduction import MAX_RUNS, x_of, x_of_bin
from diagnose.reading import Scope


def stop_runs(scope: Scope, since_ts: int | None = None) -> str:
    """Returns stretches of steps whose admission ended for the same reason."""
    return f"""
WITH changes AS (
  SELECT ts, stop_reason
  FROM admission_stops
  WHERE {since_step(scope, since_ts).where()}
  WINDOW steps AS (ORDER BY step)
  QUALIFY row_number() OVER steps = 1
    OR step > lag(step + num_repeats) OVER steps
    OR stop_reason IS DISTINCT FROM lag(stop_reason) OVER steps
)
SELECT {first_x(scope)} AS x, {x_of(scope, "lead(ts) OVER (ORDER BY ts)")} AS x2,
       stop_reason
FROM changes
ORDER BY ts
LIMIT {MAX_RUNS + 1}
""".strip()


def stop_shares(scope: Scope, length_ns: int, since_ts: int | None = None) -> str:
    """Returns each reason's share of the steps of each stretch."""
    return f"""
WITH placed AS (
  SELECT step, num_repeats, stop_reason, greatest(ts, {scope.start_ts}) // {length_ns} AS bin
  FROM admission_stops WHERE {since_step(scope, since_ts).where()}
),
stretches AS (SELECT bin, arg_max(stop_reason, step) AS last_reason FROM placed GROUP BY bin),
counts AS (
  SELECT bin, stop_reason, sum(num_repeats)::BIGINT AS n FROM placed GROUP BY ALL
  UNION ALL
  SELECT bin + 1, last_reason, 1 FROM stretches {QUIET_AFTER}
),
ends AS (
  SELECT bin, lead(bin) OVER (ORDER BY bin) AS until FROM (SELECT DISTINCT bin FROM counts)
)
SELECT {x_of_bin(scope, length_ns)} AS x, {x_of_bin(scope, length_ns, "until")} AS x2,
       stop_reason, n / sum(n) OVER (PARTITION BY bin) AS share
FROM counts JOIN ends USING (bin)
ORDER BY x
""".strip()


def stop_totals(scope: Scope) -> str:
    """Returns how many steps ended their admission for each reason, most frequent first."""
    return f"""
SELECT stop_reason, sum(num_repeats)::BIGINT AS num_steps
FROM admission_stops
WHERE {scope.where()}
GROUP BY ALL ORDER BY num_steps DESC, stop_reason
""".strip()
