-- One row a stretch of a request's life. But for loads the stretches of a request follow each other
-- without gap or overlap from its arrival to its end; a load runs while its request waits.
--   queued      arrival to first admission
--   prefill     first admission to first output token
--   decode      first output token, or first one after a resumption, to its end or a preemption
--   preempted   preemption to resumption
--   recompute   resumption to the next output token
--   load        start of a load to its end, of KV or of an encoder item
--
--: engine [-, -] engine start, 64 random bits
--: request [-, -] request, counted per engine start
--: request_id [-, -] the caller's id
--: phase [-, -] queued, prefill, decode, preempted, recompute or load
--: reason [-, -] why it waited (WaitReason), in the first step that left it waiting; NULL if none
--:   did, and in phases that do not wait
--: start_ts [ns, -] when it began
--: end_ts [ns, -] when it ended; NULL while open
--: duration_ns [ns, -] how long it lasted; while open, up to the newest moment that the log knows
--:   of its engine
--: is_open [-, -] whether it has not ended
--: nth [-, -] which stretch of this phase in the request's life, from 1
--: start_step [-, -] step in which, or before which, it began
--: end_step [-, -] step in which, or before which, it ended; NULL while open
--= SELECT phase, count(*) AS num_intervals, sum(duration_ns) // 1000000 AS total_ms
--= FROM request_intervals GROUP BY phase ORDER BY total_ms DESC, phase
CREATE OR REPLACE VIEW request_intervals AS
WITH turns AS (
  SELECT engine, request, seq, step, ts, 'queued' AS phase, false AS is_reset FROM request_arrivals
  UNION ALL
  SELECT engine, request, seq, step, ts, NULL, false FROM request_finishes
  UNION ALL
  SELECT
    engine, request, seq, step, ts,
    CASE kind
      WHEN event_kind('admitted') THEN 'prefill'
      WHEN event_kind('preempted') THEN 'preempted'
      WHEN event_kind('resumed') THEN 'recompute'
      ELSE 'decode'
    END,
    cause IS NOT DISTINCT FROM preemption_cause('cache_reset')
  FROM request_events
  WHERE request IS NOT NULL AND kind IN (
    event_kind('admitted'), event_kind('preempted'), event_kind('resumed'),
    event_kind('first_token'), event_kind('caught_up')
  )
),
-- In order of time: with steps in flight an update may be written down before what was decided
-- before it. A first token after a resumption is told twice; the second telling changes nothing, nor
-- does a token that was on its way when its request was preempted.
changes AS (
  SELECT *
  FROM turns
  WINDOW life AS (PARTITION BY engine, request ORDER BY ts, seq)
  QUALIFY phase IS DISTINCT FROM lag(phase, 1, '') OVER life
    AND NOT (phase IS NOT DISTINCT FROM 'decode' AND lag(phase, 1, '') OVER life = 'preempted')
),
stretches AS (
  SELECT
    *,
    lead(ts) OVER life AS end_ts,
    lead(step) OVER life AS end_step,
    lead(seq) OVER life AS end_seq,
    row_number() OVER (PARTITION BY engine, request, phase ORDER BY ts, seq) AS nth
  FROM changes
  WINDOW life AS (PARTITION BY engine, request ORDER BY ts, seq)
),
-- The first step that can have left it waiting: a step that preempts scans nobody.
waits AS (
  SELECT
    *,
    step + (phase = 'preempted' AND NOT is_reset)::UBIGINT AS looked_at_step
  FROM stretches
  WHERE phase IN ('queued', 'preempted')
),
first_looks AS (
  SELECT
    w.engine, w.request, w.seq,
    CASE
      WHEN s.head_request = w.request AND s.stop_reason <> stop_reason('queue_empty')
        THEN stop_reason_name(s.stop_reason)
      WHEN s.stop_reason IN (
        stop_reason('preempted_this_step'), stop_reason('paused_all'), stop_reason('paused_new')
      ) THEN 'not_visited'
      WHEN s.stop_reason IN (stop_reason('token_budget'), stop_reason('input_budget'))
        AND s.num_admitted + s.num_resumed = 0 THEN 'not_visited'
      WHEN s.stop_reason IS NOT NULL THEN 'behind_head'
    END AS reason
  FROM waits w
  JOIN steps s ON s.engine = w.engine AND s.step = w.looked_at_step
  WHERE w.end_step IS NULL OR w.end_step > w.looked_at_step
),
skips AS (
  SELECT w.engine, w.request, w.seq, arg_min(skip_reason_name(e.reason), e.seq) AS reason
  FROM waits w
  JOIN request_events e
    ON e.engine = w.engine AND e.request = w.request
    AND e.kind = event_kind('skipped')
    AND e.seq > w.seq AND e.seq < coalesce(w.end_seq, 18446744073709551615)
    AND e.step <= w.looked_at_step
  GROUP BY w.engine, w.request, w.seq
),
loads AS (
  SELECT
    engine, request, seq, step, ts, kind,
    CASE WHEN connector = 'encoder' THEN text END AS item_key
  FROM request_events
  WHERE request IS NOT NULL AND kind IN (
    event_kind('load_started'), event_kind('load_finished'),
    event_kind('load_failed'), event_kind('load_timed_out')
  )
),
load_stretches AS (
  SELECT
    *,
    lead(ts) OVER life AS end_ts,
    lead(step) OVER life AS end_step,
    count(*) FILTER (WHERE kind = event_kind('load_started')) OVER (
      PARTITION BY engine, request ORDER BY seq
    ) AS nth
  FROM loads
  WINDOW life AS (PARTITION BY engine, request, item_key ORDER BY seq)
  QUALIFY kind = event_kind('load_started')
),
all_stretches AS (
  SELECT
    t.engine, t.request, t.phase,
    coalesce(k.reason, l.reason) AS reason,
    t.ts AS start_ts, t.end_ts, t.nth, t.step AS start_step, t.end_step
  FROM stretches t
  LEFT JOIN first_looks l ON l.engine = t.engine AND l.request = t.request AND l.seq = t.seq
  LEFT JOIN skips k ON k.engine = t.engine AND k.request = t.request AND k.seq = t.seq
  WHERE t.phase IS NOT NULL
  UNION ALL
  SELECT engine, request, 'load', NULL, ts, end_ts, nth, step, end_step
  FROM load_stretches
)
SELECT
  t.engine,
  t.request,
  a.request_id,
  t.phase,
  t.reason,
  t.start_ts,
  t.end_ts,
  coalesce(t.end_ts, e.newest_ts) - t.start_ts AS duration_ns,
  t.end_ts IS NULL AS is_open,
  t.nth,
  t.start_step,
  t.end_step
FROM all_stretches t
LEFT JOIN log_ends e ON e.engine = t.engine
LEFT JOIN request_arrivals a ON a.engine = t.engine AND a.request = t.request;
