-- One row an engine start: from when to when the log knows of it, and how it ended.
--
--: engine [-, -] engine start, 64 random bits
--: first_ts [ns, -] oldest moment recorded of it
--: newest_ts [ns, -] newest moment recorded of it; open intervals are measured up to here
--: end_kind [-, -] engine_stopped, engine_died or engine_failed; NULL while nothing says that it
--:   ended
--: end_ts [ns, -] when it ended; NULL likewise
--: end_step [-, -] step in which it ended; NULL likewise
--= SELECT engine, end_kind, (newest_ts - first_ts) // 1000000 AS duration_ms
--= FROM log_ends ORDER BY first_ts
CREATE OR REPLACE VIEW log_ends AS
WITH moments AS (
  SELECT engine, min(ts) AS first_ts, max(coalesce(updated_ts, ts)) AS newest_ts
  FROM steps GROUP BY engine
  UNION ALL SELECT engine, min(ts), max(ts) FROM request_events GROUP BY engine
  UNION ALL SELECT engine, min(ts), max(ts) FROM request_arrivals GROUP BY engine
  UNION ALL SELECT engine, min(ts), max(ts) FROM request_finishes GROUP BY engine
  UNION ALL SELECT engine, min(ts), max(ts) FROM heartbeats GROUP BY engine
),
ends AS (
  SELECT
    engine,
    arg_max(event_kind_name(kind), seq) AS end_kind,
    arg_max(ts, seq) AS end_ts,
    arg_max(step, seq) AS end_step
  FROM request_events
  WHERE kind IN (
    event_kind('engine_stopped'), event_kind('engine_died'), event_kind('engine_failed')
  )
  GROUP BY engine
)
SELECT
  m.engine,
  min(m.first_ts) AS first_ts,
  max(m.newest_ts) AS newest_ts,
  any_value(e.end_kind) AS end_kind,
  any_value(e.end_ts) AS end_ts,
  any_value(e.end_step) AS end_step
FROM moments m
LEFT JOIN ends e ON e.engine = m.engine
GROUP BY m.engine;
