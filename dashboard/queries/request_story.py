"""The statements behind the charts of one request: its stretches, its losses and its tokens."""

from __future__ import annotations

from dashboard.queries.reduction import MAX_RUNS, x_of
from diagnose.reading import Scope


def life(engine: int, request: int) -> str:
    """Returns one row: when it arrived, and when it ended or was last known of."""
    return f"""
SELECT r.ts AS arrived_ts, coalesce(r.finished_ts, e.newest_ts) AS until_ts
FROM requests r LEFT JOIN log_ends e ON e.engine = r.engine
WHERE r.engine = {engine} AND r.request = {request}
""".strip()


def phases(scope: Scope, request: int) -> str:
    """Returns the stretches of its life.

    `reason` is what the first step that left it waiting says of it. Where that names no resource,
    `usual_reason` is why most steps of the wait let nobody in.
    """
    return f"""
WITH life AS (
  SELECT phase, reason, start_ts, duration_ns::BIGINT AS duration_ns, is_open,
         nth::BIGINT AS nth, start_step, end_step, count(*) OVER () AS num_all
  FROM request_intervals
  WHERE engine = {scope.engine} AND request = {request}
  ORDER BY start_ts, phase
  LIMIT {MAX_RUNS}
),
stops AS (
  SELECT l.start_ts, l.phase, mode(s.stop_reason) AS stop_reason
  FROM life l
  JOIN steps s ON s.step >= l.start_step AND s.step < coalesce(l.end_step, s.step + 1)
  WHERE l.reason IN ('behind_head', 'not_visited') AND s.{scope.where("s.ts")}
    AND s.stop_reason NOT IN (stop_reason('queue_empty'), stop_reason('preempted_this_step'))
  GROUP BY ALL
)
SELECT {x_of(scope, "l.start_ts")} AS x, {x_of(scope, "l.start_ts + l.duration_ns")} AS x2,
       l.phase, l.reason, stop_reason_name(s.stop_reason) AS usual_reason,
       l.duration_ns, l.is_open, l.nth, l.num_all
FROM life l
LEFT JOIN stops s ON s.start_ts = l.start_ts AND s.phase = l.phase
ORDER BY l.start_ts, l.phase
""".strip()


def evictions(scope: Scope, request: int) -> str:
    """Returns its preemptions: when, for whom, and what was lost."""
    return f"""
SELECT {x_of(scope)} AS x, beneficiary::BIGINT AS beneficiary, cause,
       num_computed_tokens_lost::BIGINT AS lost,
       num_tokens_recomputed::BIGINT AS recomputed,
       num_tokens_regained_from_prefix_cache::BIGINT AS from_cache,
       num_tokens_regained_from_connector::BIGINT AS from_connector
FROM preemptions
WHERE engine = {scope.engine} AND request = {request}
ORDER BY seq
LIMIT {MAX_RUNS}
""".strip()


def tokens(scope: Scope, request: int) -> str:
    """Returns how many tokens it had computed, at every moment that the log knows.

    Each step tells where `step_requests` is kept; else its turns do. `kind` says which: `step`,
    or what happened. `skipped_steps` is the largest hole between two rows of steps of one turn:
    0 where none is missing, NULL without such rows. A preemption's `tokens` are those before it.

    Traps: a token that was on its way when its request was preempted tells nothing of what is in
    the cache; nor does the first token of a streaming session, whose prompt grows.
    """
    return f"""
WITH turns AS (
  SELECT e.seq, e.step, e.ts, event_kind_name(e.kind) AS happened,
         CASE
           WHEN e.kind = event_kind('preempted') THEN e.num_computed_tokens_lost::BIGINT
           WHEN e.kind IN (event_kind('admitted'), event_kind('resumed')) THEN
             e.num_scheduled_tokens::BIGINT + coalesce(e.num_hit_tokens, 0)::BIGINT
               + coalesce(e.num_external_tokens, 0)::BIGINT
         END AS told,
         last_value(e.num_output_tokens_kept::BIGINT IGNORE NULLS) OVER life AS kept,
         last_value(CASE WHEN e.kind NOT IN (event_kind('first_token'), event_kind('caught_up'))
           THEN e.kind END IGNORE NULLS) OVER life AS state
  FROM request_events e
  WHERE e.engine = {scope.engine} AND e.request = {request} AND e.kind IN (
    event_kind('admitted'), event_kind('resumed'), event_kind('preempted'),
    event_kind('first_token'), event_kind('caught_up')
  )
  WINDOW life AS (ORDER BY e.seq)
),
known AS (
  SELECT t.seq, t.step, t.ts, t.happened AS kind,
         CASE
           WHEN t.happened IN ('first_token', 'caught_up') THEN
             CASE WHEN a.session IS NULL THEN a.num_prompt_tokens::BIGINT + coalesce(t.kept, 0) END
           ELSE t.told
         END AS tokens
  FROM turns t
  JOIN request_arrivals a ON a.engine = {scope.engine} AND a.request = {request}
  WHERE t.happened NOT IN ('first_token', 'caught_up')
    OR t.state IS DISTINCT FROM event_kind('preempted')
  UNION ALL
  SELECT seq, step, ts, 'finished', num_computed_tokens::BIGINT
  FROM request_finishes WHERE engine = {scope.engine} AND request = {request}
),
dense AS (
  SELECT r.step, r.ts, r.num_computed_tokens::BIGINT + r.num_scheduled_tokens::BIGINT AS tokens,
         (SELECT count(*) FROM turns t WHERE t.happened = 'preempted' AND t.step <= r.step) AS turn
  FROM step_requests r
  WHERE r.engine = {scope.engine} AND r.request = {request}
    AND r.ts BETWEEN {scope.start_ts} AND {scope.end_ts}
    AND r.num_computed_tokens IS NOT NULL AND r.num_scheduled_tokens IS NOT NULL
),
counted AS (
  SELECT step, ts, tokens,
         step::BIGINT - lag(step::BIGINT) OVER (PARTITION BY turn ORDER BY step) - 1 AS skipped,
         row_number() OVER (ORDER BY step) AS place, count(*) OVER () AS num_rows
  FROM dense
),
holes AS (
  SELECT CASE WHEN count(*) > 0 THEN coalesce(max(skipped), 0) END AS skipped_steps FROM counted
),
points AS (
  SELECT 0 AS seq, step, ts, 'step' AS kind, tokens FROM counted
  WHERE (num_rows - place) % greatest(1, (num_rows + {MAX_RUNS} - 1) // {MAX_RUNS}) = 0
  UNION ALL
  SELECT k.seq, k.step, k.ts, k.kind, k.tokens FROM known k CROSS JOIN holes h
  WHERE h.skipped_steps IS DISTINCT FROM 0 OR k.kind NOT IN ('first_token', 'caught_up')
)
SELECT {x_of(scope)} AS x, kind, tokens, skipped_steps
FROM points CROSS JOIN holes
WHERE tokens IS NOT NULL OR kind = 'preempted'
ORDER BY ts, seq
LIMIT {MAX_RUNS + 500}
""".strip()
