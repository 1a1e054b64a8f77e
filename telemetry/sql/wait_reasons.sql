-- One row a step and waiting request: what it waits for once the step is scheduled. The head has the
-- StopReason that ended the scan; who was set aside has its last SkipReason; all others are
-- behind_head. A step that scans nobody (it preempted, is paused, or had no budget left before the
-- first admission) leaves each its last reason; who has none yet is not_visited. A pause of new
-- requests still looks at those that hold KV, and may set them aside. The reason is NULL where the
-- source does not say why admission ended. A whole log has very many rows: ask
-- wait_reasons_between(from_ns, until_ns) for those of a stretch of ts, both ends within it.
-- queue_by_reason counts the same without making them.
--
--: engine [-, -] engine start, 64 random bits
--: step [-, -] step, counted per engine start
--: ts [ns, -] when the step began
--: ts_utc [UTC, -] the same, for reading
--: num_repeats [steps, -] equal steps told in this row
--: request [-, -] request, counted per engine start
--: wait_reason [-, -] what it waits for (WaitReason)
--= SELECT engine, request, wait_reason, count(*) AS num_steps
--= FROM wait_reasons
--= GROUP BY ALL ORDER BY num_steps DESC, engine, request, wait_reason LIMIT 5

-- The steps of a stretch, and some before it: who was the head, and why, when the queue was last
-- scanned; `chain` is the step of that scan.
CREATE OR REPLACE MACRO queue_scans_between(from_ns, until_ns) AS TABLE
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
)
SELECT
  * EXCLUDE (scan, head),
  coalesce(scan.step, -1) AS chain,
  CASE has_scanned WHEN true THEN head WHEN false THEN scan.head END AS head,
  scan.stop_reason AS head_reason
FROM scans;

-- Stretches of a request's waiting for one thing: from_step up to, not with, until_step. In order of
-- time: with steps in flight an update may be written down before what was decided before it.
CREATE OR REPLACE MACRO waits_between(from_ns, until_ns) AS TABLE
WITH
-- The oldest arrival of those that had not ended when this stretch began.
oldest AS (
  SELECT coalesce(
    (
      SELECT min(a.ts)
      FROM request_arrivals a
      ANTI JOIN (SELECT engine, request FROM request_finishes WHERE ts < from_ns) f
        ON f.engine = a.engine AND f.request = a.request
    ),
    from_ns, 0
  ) AS ts
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
      event_kind('admitted'), event_kind('resumed'), event_kind('preempted'), event_kind('skipped'),
      event_kind('turn_finished')
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
-- Steps that began while others were in flight.
overlapping AS (
  SELECT engine, step, ts
  FROM steps
  WHERE num_steps_in_flight > 1 AND ts >= (SELECT ts FROM oldest)
),
-- What happens after a step's schedule() shows in the first step that begins later: the next one,
-- or one further on where an update tells of a step and others have begun since. What has no step
-- yet shows in none. Where schedule() was not timed, a request that fails in the scan is gone at
-- once, though its end is told in the update.
placed AS (
  SELECT
    t.engine, t.request, t.seq, t.ts, t.kind, t.reason,
    CASE
      WHEN s.step IS NULL OR t.ts <= s.ts + coalesce(s.schedule_ns, 0) THEN t.step
      WHEN s.schedule_ns IS NOT NULL THEN greatest(t.step, b.step) + 1
      WHEN t.kind = event_kind('finished') AND t.reason = finish_reason('error') THEN t.step
      ELSE t.step + (t.kind IN (event_kind('arrived'), event_kind('finished')))::INT
    END AS step
  FROM living t
  LEFT JOIN steps s ON s.engine = t.engine AND s.step = t.step
  ASOF LEFT JOIN overlapping b ON b.engine = t.engine AND t.ts > b.ts
)
SELECT
  engine, request,
  CASE WHEN kind = event_kind('skipped') THEN reason END AS reason,
  step::BIGINT AS from_step,
  coalesce(
    lead(step) OVER (PARTITION BY engine, request ORDER BY ts, seq), 9223372036854775807
  )::BIGINT AS until_step,
  kind
FROM placed
QUALIFY until_step > from_step
  AND kind IN (
    event_kind('arrived'), event_kind('preempted'), event_kind('skipped'),
    event_kind('turn_finished')
  );

CREATE OR REPLACE MACRO wait_reasons_between(from_ns, until_ns) AS TABLE
SELECT
  r.engine,
  r.step::UBIGINT AS step,
  r.ts,
  utc(r.ts) AS ts_utc,
  r.num_repeats,
  w.request,
  CASE
    WHEN w.request = r.head THEN stop_reason_name(r.head_reason)
    WHEN w.reason IS NOT NULL THEN skip_reason_name(w.reason)
    WHEN NOT r.has_scanned AND w.from_step > r.chain THEN 'not_visited'
    WHEN r.has_scanned IS NOT NULL THEN 'behind_head'
  END AS wait_reason
FROM queue_scans_between(from_ns, until_ns) r
JOIN waits_between(from_ns, until_ns) w
  ON w.engine = r.engine AND r.step >= w.from_step AND r.step < w.until_step
WHERE r.is_asked;

CREATE OR REPLACE VIEW wait_reasons AS
SELECT * FROM wait_reasons_between(NULL::BIGINT, NULL::BIGINT);
