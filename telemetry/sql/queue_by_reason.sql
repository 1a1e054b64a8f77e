-- One row a step and reason: how many requests wait for it once the step is scheduled. Every
-- waiting request has exactly one reason, so the rows of a step add up to its num_waiting: the head
-- has the StopReason that ended the scan; who was set aside has its last SkipReason; all others are
-- behind_head. A step that scans nobody (it preempted, is paused, or had no budget left before the
-- first admission) leaves each its last reason; who has none yet is not_visited. The reason is NULL
-- where the source does not say why admission ended. On a long log ask
-- queue_by_reason_between(from_ns, until_ns): the same rows of that stretch of ts only, both ends
-- within it, in time that grows with the stretch.
--
--: engine [-, -] engine start, 64 random bits
--: step [-, -] step, counted per engine start
--: ts [ns, -] when the step began
--: ts_utc [UTC, -] the same, for reading
--: num_repeats [steps, -] equal steps told in this row
--: wait_reason [-, -] what the requests wait for (WaitReason)
--: num_requests [requests, lower] how many of them
CREATE OR REPLACE MACRO queue_by_reason_between(from_ns, until_ns) AS TABLE
WITH marked AS NOT MATERIALIZED (
  SELECT
    engine, step::BIGINT AS step, ts, num_repeats,
    num_waiting::BIGINT AS num_waiting,
    stop_reason,
    CASE WHEN stop_reason <> stop_reason('queue_empty') THEN head_request END AS head,
    NOT (
      stop_reason IN (
        stop_reason('preempted_this_step'), stop_reason('paused_all'), stop_reason('paused_new')
      )
      OR (
        stop_reason IN (stop_reason('token_budget'), stop_reason('input_budget'))
        AND num_admitted + num_resumed = 0
      )
    ) AS has_scanned
  FROM steps
),
asked AS NOT MATERIALIZED (
  SELECT *
  FROM marked
  WHERE (from_ns IS NULL OR ts >= from_ns) AND (until_ns IS NULL OR ts <= until_ns)
),
-- The last scan before that stretch: what its first steps may still show goes back so far.
last_scans AS (
  SELECT engine, coalesce(max(ts) FILTER (WHERE has_scanned), min(ts)) AS ts
  FROM marked
  WHERE ts < from_ns
  GROUP BY engine
  HAVING engine IN (SELECT engine FROM asked)
),
looked_at AS (
  SELECT *, true AS is_asked FROM asked
  UNION ALL
  SELECT m.*, false
  FROM marked m
  JOIN last_scans l ON l.engine = m.engine AND m.ts >= l.ts
  WHERE m.ts < from_ns AND m.ts >= (SELECT min(ts) FROM last_scans)
),
scans AS (
  SELECT
    *,
    last_value(
      CASE WHEN has_scanned
        THEN {'step': step, 'head': head, 'stop_reason': stop_reason} END
      IGNORE NULLS
    ) OVER (PARTITION BY engine ORDER BY step ROWS UNBOUNDED PRECEDING) AS scan
  FROM looked_at
),
rows_of_steps AS (
  SELECT
    * EXCLUDE (scan, head),
    coalesce(scan.step, -1) AS chain,
    CASE has_scanned WHEN true THEN head WHEN false THEN scan.head END AS head,
    scan.stop_reason AS head_reason
  FROM scans
),
-- The oldest arrival of those that had not ended when this stretch began.
oldest AS (
  SELECT coalesce(min(a.ts), from_ns, 0) AS ts
  FROM request_arrivals a
  ANTI JOIN (SELECT engine, request FROM request_finishes WHERE ts < from_ns) f
    ON f.engine = a.engine AND f.request = a.request
),
-- Turns in the lives of the requests that may have waited in this stretch. Events of the last step
-- come after its beginning, so a minute more is read; later turns change nothing.
turns AS (
  SELECT engine, request, seq, step, ts, event_kind('arrived') AS kind, NULL::UTINYINT AS reason
  FROM request_arrivals
  WHERE ts >= (SELECT ts FROM oldest) AND (until_ns IS NULL OR ts <= until_ns + 60000000000)
  UNION ALL
  SELECT engine, request, seq, step, ts, event_kind('finished'), reason
  FROM request_finishes
  WHERE from_ns IS NULL OR ts >= from_ns
  UNION ALL
  SELECT engine, request, seq, step, ts, kind, reason
  FROM request_events
  WHERE request IS NOT NULL
    AND ts >= (SELECT ts FROM oldest) AND (until_ns IS NULL OR ts <= until_ns + 60000000000)
    AND kind IN (
      event_kind('admitted'), event_kind('resumed'), event_kind('preempted'), event_kind('skipped')
    )
),
living AS (
  SELECT t.*
  FROM turns t
  ANTI JOIN (
    SELECT engine, request FROM request_finishes
    WHERE ts < from_ns AND ts >= (SELECT ts FROM oldest)
  ) f
    ON f.engine = t.engine AND f.request = t.request
),
-- What happens after a step's schedule() shows in the next step; what has no step yet, in none. A
-- request that fails in the scan is gone at once, though its end is told in the update.
placed AS (
  SELECT
    t.engine, t.request, t.seq, t.kind, t.reason,
    t.step + CASE
      WHEN s.step IS NULL THEN 0
      WHEN t.kind = event_kind('finished') AND t.reason = finish_reason('error') THEN 0
      WHEN s.schedule_ns IS NOT NULL THEN (t.ts > s.ts + s.schedule_ns)::INT
      ELSE (t.ts > s.ts AND t.kind IN (event_kind('arrived'), event_kind('finished')))::INT
    END AS step
  FROM living t
  LEFT JOIN steps s ON s.engine = t.engine AND s.step = t.step
),
-- Stretches of waiting for one thing: from_step up to, not with, until_step.
waits AS (
  SELECT
    engine, request,
    CASE WHEN kind = event_kind('skipped') THEN reason END AS reason,
    step::BIGINT AS from_step,
    coalesce(
      lead(step) OVER (PARTITION BY engine, request ORDER BY seq), 9223372036854775807
    )::BIGINT AS until_step,
    kind
  FROM placed
  QUALIFY until_step > from_step
    AND kind IN (event_kind('arrived'), event_kind('preempted'), event_kind('skipped'))
),
-- Set aside, by reason (0 is their sum): the number after each change.
skip_changes AS (
  SELECT engine, reason, from_step AS step, 1 AS delta FROM waits WHERE reason IS NOT NULL
  UNION ALL
  SELECT engine, reason, until_step, -1 FROM waits WHERE reason IS NOT NULL
),
skip_levels AS (
  SELECT
    engine, reason, step,
    sum(sum(delta)) OVER (PARTITION BY engine, reason ORDER BY step)::BIGINT AS num
  FROM (
    FROM skip_changes
    UNION ALL
    SELECT engine, 0, step, delta FROM skip_changes
  )
  GROUP BY engine, reason, step
),
set_aside AS (
  SELECT s.engine, s.step, s.ts, s.num_repeats, l.reason, l.num
  FROM (
    SELECT r.engine, r.step, r.ts, r.num_repeats, k.reason
    FROM rows_of_steps r
    JOIN (SELECT DISTINCT engine, reason FROM skip_levels) k ON k.engine = r.engine
    WHERE r.is_asked AND r.num_waiting > 0
  ) s
  ASOF JOIN skip_levels l
    ON l.engine = s.engine AND l.reason = s.reason AND s.step >= l.step
  WHERE l.num <> 0
),
-- Come since the last scan, and not looked at: the number after each change, a chain of steps each.
new_waits AS (
  SELECT w.engine, r.chain, w.from_step, w.until_step
  FROM waits w
  JOIN rows_of_steps r ON r.engine = w.engine AND r.step = w.from_step
  WHERE w.reason IS NULL AND NOT r.has_scanned
),
new_levels AS (
  SELECT
    engine, chain, step,
    sum(sum(delta)) OVER (PARTITION BY engine, chain ORDER BY step)::BIGINT AS num
  FROM (
    SELECT engine, chain, from_step AS step, 1 AS delta FROM new_waits
    UNION ALL
    SELECT engine, chain, until_step, -1 FROM new_waits
  )
  GROUP BY engine, chain, step
),
not_visited AS (
  SELECT r.engine, r.step, l.num
  FROM (FROM rows_of_steps WHERE NOT has_scanned AND is_asked) r
  ASOF JOIN new_levels l ON l.engine = r.engine AND l.chain = r.chain AND r.step >= l.step
  WHERE l.num <> 0
),
-- The head counts while it waits; if it had been set aside before, as the head all the same.
counted AS (
  SELECT
    r.engine, r.step, r.ts, r.num_repeats, r.num_waiting, r.has_scanned, r.head_reason,
    (r.head IS NOT NULL AND (r.has_scanned OR w.request IS NOT NULL))::INT AS num_heads,
    w.reason AS head_skip,
    coalesce(a.num, 0) - (w.reason IS NOT NULL)::INT AS num_set_aside,
    coalesce(n.num, 0) AS num_new
  FROM rows_of_steps r
  LEFT JOIN waits w
    ON w.engine = r.engine AND w.request = r.head
    AND r.step >= w.from_step AND r.step < w.until_step
  LEFT JOIN set_aside a ON a.reason = 0 AND a.engine = r.engine AND a.step = r.step
  LEFT JOIN not_visited n ON n.engine = r.engine AND n.step = r.step
  WHERE r.is_asked AND r.num_waiting > 0
),
reasons AS (
  SELECT
    a.engine, a.step, a.ts, a.num_repeats,
    skip_reason_name(a.reason) AS wait_reason,
    a.num - (h.step IS NOT NULL)::INT AS num
  FROM set_aside a
  LEFT JOIN (FROM counted WHERE head_skip IS NOT NULL) h
    ON h.engine = a.engine AND h.step = a.step AND h.head_skip = a.reason
  WHERE a.reason > 0
  UNION ALL
  SELECT engine, step, ts, num_repeats, stop_reason_name(head_reason), num_heads FROM counted
  UNION ALL
  SELECT engine, step, ts, num_repeats, 'not_visited', num_new FROM counted
  UNION ALL
  SELECT
    engine, step, ts, num_repeats,
    CASE WHEN has_scanned IS NOT NULL THEN 'behind_head' END,
    num_waiting - num_set_aside - num_heads - num_new
  FROM counted
)
SELECT
  engine,
  step::UBIGINT AS step,
  ts,
  utc(ts) AS ts_utc,
  num_repeats,
  wait_reason,
  num::BIGINT AS num_requests
FROM reasons
WHERE num <> 0;

CREATE OR REPLACE VIEW queue_by_reason AS
SELECT * FROM queue_by_reason_between(NULL::BIGINT, NULL::BIGINT);
