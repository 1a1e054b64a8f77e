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
--= SELECT wait_reason, sum(num_requests) AS num_request_steps, max(num_requests) AS most_at_once
--= FROM queue_by_reason GROUP BY wait_reason ORDER BY num_request_steps DESC, wait_reason
CREATE OR REPLACE MACRO queue_by_reason_between(from_ns, until_ns) AS TABLE
WITH rows_of_steps AS (
  FROM queue_scans_between(from_ns, until_ns)
),
waits AS (
  FROM waits_between(from_ns, until_ns)
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
