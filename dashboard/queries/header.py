"""What the header and the readout need: engines, the window, the record's gaps."""

from __future__ import annotations

from dashboard.queries.reduction import MAX_STOPS, bin_of, x_of
from diagnose.reading import Scope

ENGINES = """
WITH told AS (
  SELECT engine, first_ts, newest_ts, end_kind, end_ts, end_step FROM log_ends
  UNION ALL
  SELECT engine, min(ts), max(ts), NULL, NULL, NULL
  FROM (SELECT engine, ts FROM samples UNION ALL SELECT engine, ts FROM log_lines) s
  ANTI JOIN log_ends e USING (engine)
  GROUP BY engine
),
newest AS (
  FROM engines QUALIFY row_number() OVER (PARTITION BY engine ORDER BY started_ts DESC) = 1
)
SELECT e.engine, d.model, d.dp_rank, d.source, d.version, d.started_ts,
       e.first_ts, e.newest_ts, e.end_kind, e.end_ts, e.end_step
FROM told e LEFT JOIN newest d ON d.engine = e.engine
ORDER BY e.first_ts DESC, e.engine
""".strip()
"""Every engine start, and every engine that is only scraped, the newest first."""


def window(scope: Scope) -> str:
    """Returns one row: steps, their rows, steps missing, when the last ended, who was left."""
    return f"""
SELECT coalesce(sum(num_repeats), 0)::BIGINT AS num_steps,
       count(*) AS num_rows,
       (max(step + num_repeats) - min(step) - sum(num_repeats))::BIGINT AS num_missing,
       min(ts) AS first_ts,
       max(coalesce(updated_ts, ts)) AS last_ts,
       arg_max(num_running + num_waiting, step)::BIGINT AS last_in_engine,
       (SELECT max(ts) FROM steps
        WHERE engine = {scope.engine} AND ts < {scope.start_ts}) AS before_ts
FROM steps
WHERE {scope.where()}
""".strip()


def gaps(scope: Scope) -> str:
    """Returns a row a hole in the steps: from, to, how many steps it swallowed."""
    return f"""
SELECT {x_of(scope, "before_ts")} AS x, {x_of(scope)} AS x2, num_missing
FROM (
  SELECT ts,
         lag(coalesce(updated_ts, ts)) OVER (ORDER BY step) AS before_ts,
         (step - lag(step + num_repeats) OVER (ORDER BY step))::BIGINT AS num_missing
  FROM steps
  WHERE {scope.where()}
)
WHERE num_missing > 0
ORDER BY num_missing DESC
LIMIT 50
""".strip()


def readouts(scope: Scope) -> str:
    """Returns the steps that the cursor can stop at, one a stretch, with what they say."""
    stretch = max(1, -(-scope.duration_ns // MAX_STOPS))
    return f"""
SELECT {x_of(scope)} AS x, step, ts, updated_ts - ts AS duration_ns, num_repeats,
       num_running, num_waiting,
       num_blocks_free_unhashed::BIGINT + num_blocks_free_cached::BIGINT AS num_blocks_free,
       head_blocks_needed, stop_reason_name(stop_reason) AS stop_reason,
       num_scheduled_tokens, num_recomputed_tokens, num_preempted
FROM steps
WHERE {scope.where()}
WINDOW stretch AS (PARTITION BY {bin_of(stretch)} ORDER BY num_preempted DESC, ts)
QUALIFY row_number() OVER stretch = 1
ORDER BY ts
""".strip()


def events(scope: Scope) -> str:
    """Returns the events that concern the whole engine: starts, resets, pauses, ends."""
    return f"""
SELECT {x_of(scope)} AS x, event_kind_name(kind) AS kind
FROM request_events
WHERE {scope.where()} AND kind IN (
  event_kind('engine_started'), event_kind('engine_died'), event_kind('engine_failed'),
  event_kind('engine_stopped'), event_kind('config_changed'), event_kind('paused'),
  event_kind('unpaused'), event_kind('prefix_cache_reset'), event_kind('records_dropped')
)
ORDER BY ts
LIMIT 30
""".strip()
