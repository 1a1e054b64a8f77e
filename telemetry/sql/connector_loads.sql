-- One row a load from a connector, of KV or of an encoder item: from the moment it was asked for to
-- how it ended. A load that was given up and ends later stays timed out.
--
--: engine [-, -] engine start, 64 random bits
--: step [-, -] step in which it was asked for
--: ts [ns, -] when it was asked for: queued or, where that is not told, started
--: ts_utc [UTC, -] the same, for reading
--: request [-, -] request that it is for
--: request_id [-, -] that request's id as its caller gave it
--: nth [-, -] which load of this request, from 1
--: connector [-, -] connector that loads; 'encoder' for encoder items
--: item_key [-, -] salted key of the encoder item; NULL for KV
--: tier [-, -] where the KV lay: device, host, disk or remote
--: peer [-, -] other side of the transfer
--: num_tokens [tokens, -] tokens concerned; of an encoder item, its embeddings
--: num_blocks [blocks, -] KV blocks concerned
--: started_ts [ns, -] when the transfer began; NULL until then
--: ended_ts [ns, -] when it ended; NULL until then
--: outcome [-, -] finished, failed, timed_out or pending
--: wait_ns [ns, lower] asked for until the transfer began
--: load_ns [ns, lower] begin to end of the transfer; while pending, up to the newest moment of
--:   the log
--: service_ns [ns, lower] time that the transfer itself took
--: num_invalid_blocks [blocks, lower] KV blocks that failed to load
--: policy [-, -] what happens to invalid blocks: recompute or fail
--= SELECT tier, outcome, count(*) AS num_loads, sum(num_tokens) AS num_tokens
--= FROM connector_loads GROUP BY ALL ORDER BY num_loads DESC, tier, outcome
CREATE OR REPLACE VIEW connector_loads AS
WITH told AS (
  SELECT *, CASE WHEN connector = 'encoder' THEN text END AS item_key FROM request_events
),
stages AS (
  SELECT
    *,
    kind = event_kind('load_queued')
      OR (
        kind = event_kind('load_started')
        AND lag(kind) OVER life IS DISTINCT FROM event_kind('load_queued')
      ) AS is_begin
  FROM told
  WHERE kind IN (
    event_kind('load_queued'), event_kind('load_started'), event_kind('load_finished'),
    event_kind('load_failed'), event_kind('load_timed_out')
  )
  WINDOW life AS (PARTITION BY engine, request, item_key ORDER BY seq)
),
numbered AS (
  SELECT
    *,
    count(*) FILTER (WHERE is_begin) OVER (
      PARTITION BY engine, request, item_key ORDER BY seq
    ) AS load_number
  FROM stages
),
loads AS (
  SELECT
    engine,
    request,
    item_key,
    row_number() OVER (PARTITION BY engine, request ORDER BY min(seq)) AS nth,
    arg_min(step, seq) AS step,
    min(ts) AS ts,
    any_value(connector) AS connector,
    max(tier) AS tier,
    any_value(peer) AS peer,
    max(num_tokens) AS num_tokens,
    max(num_blocks) AS num_blocks,
    min(ts) FILTER (WHERE kind = event_kind('load_started')) AS started_ts,
    min(ts) FILTER (
      WHERE kind NOT IN (event_kind('load_queued'), event_kind('load_started'))
    ) AS ended_ts,
    max(kind) AS last_kind,
    max(service_ns) AS service_ns,
    max(num_invalid_blocks) AS num_invalid_blocks,
    max(policy) AS policy
  FROM numbered
  GROUP BY engine, request, item_key, load_number
)
SELECT
  l.engine,
  l.step,
  l.ts,
  utc(l.ts) AS ts_utc,
  l.request,
  a.request_id,
  l.nth,
  l.connector,
  l.item_key,
  (['device', 'host', 'disk', 'remote'])[l.tier + 1] AS tier,
  l.peer,
  l.num_tokens,
  l.num_blocks,
  l.started_ts,
  l.ended_ts,
  CASE l.last_kind
    WHEN event_kind('load_finished') THEN 'finished'
    WHEN event_kind('load_failed') THEN 'failed'
    WHEN event_kind('load_timed_out') THEN 'timed_out'
    ELSE 'pending'
  END AS outcome,
  l.started_ts - l.ts AS wait_ns,
  coalesce(l.ended_ts, e.newest_ts) - l.started_ts AS load_ns,
  l.service_ns,
  l.num_invalid_blocks,
  (['recompute', 'fail'])[l.policy + 1] AS policy
FROM loads l
LEFT JOIN log_ends e ON e.engine = l.engine
LEFT JOIN request_arrivals a ON a.engine = l.engine AND a.request = l.request;
