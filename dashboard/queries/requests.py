"""The statements behind the list of requests and the story of one."""

from __future__ import annotations

from diagnose.reading import Scope

MAX_LISTED = 400


def worst_first(scope: Scope, limit: int = MAX_LISTED) -> str:
    """Returns requests that were in the engine, worst first; `$pattern` filters the caller's id."""
    return f"""
SELECT r.request, r.request_id, strftime(r.ts_utc, '%H:%M:%S.%g') AS arrived,
       r.num_prompt_tokens, r.num_output_tokens, r.priority,
       coalesce(r.num_preemptions, p.times, 0)::BIGINT AS times,
       p.tokens_lost, r.max_itl_ns / 1e6 AS longest_pause_ms,
       r.queue_ns / 1e6 AS queued_ms, r.ttft_ns / 1e6 AS first_token_ms,
       r.e2e_ns / 1e6 AS end_to_end_ms,
       coalesce(r.finish_reason, 'running') AS ended,
       count(*) OVER () AS num_all
FROM requests r
LEFT JOIN (
  SELECT request, count(*) AS times, sum(num_computed_tokens_lost)::BIGINT AS tokens_lost
  FROM preemptions WHERE engine = {scope.engine} AND ts <= {scope.end_ts} GROUP BY request
) p ON p.request = r.request
WHERE r.engine = {scope.engine} AND r.ts <= {scope.end_ts}
  AND coalesce(r.finished_ts, {scope.end_ts}) >= {scope.start_ts}
  AND ($pattern = '' OR contains(lower(r.request_id), lower($pattern))
       OR r.request::VARCHAR = $pattern)
ORDER BY times DESC, tokens_lost DESC NULLS LAST, longest_pause_ms DESC NULLS LAST, r.request
LIMIT {limit}
""".strip()


def one(engine: int, request: int) -> str:
    """Returns the row of one request."""
    return f"SELECT * FROM requests WHERE engine = {engine} AND request = {request}"


def losses(engine: int, request: int) -> str:
    """Returns its preemptions, in order."""
    return f"""
SELECT * FROM preemptions
WHERE engine = {engine} AND request = {request}
ORDER BY seq
""".strip()


def story(engine: int, request: int) -> str:
    """Returns what happened to one request, in order, with the state of the engine then."""
    return f"""
WITH happened AS (
  SELECT seq, step, ts, 'arrived' AS kind, NULL AS reason, NULL AS num_hit_tokens,
         NULL AS num_scheduled_tokens, NULL AS beneficiary, NULL AS text
  FROM request_arrivals WHERE engine = {engine} AND request = {request}
  UNION ALL
  SELECT seq, step, ts, event_kind_name(kind),
         CASE WHEN kind = event_kind('skipped') THEN skip_reason_name(reason) END,
         num_hit_tokens, num_scheduled_tokens, beneficiary, text
  FROM request_events
  WHERE engine = {engine} AND request = {request}
    AND kind NOT IN (event_kind('arrived'), event_kind('finished'))
  UNION ALL
  SELECT seq, step, ts, 'finished', finish_reason_name(reason), NULL, NULL, NULL, text
  FROM request_finishes WHERE engine = {engine} AND request = {request}
)
SELECT h.*, s.num_running, s.num_waiting, s.head_request, s.head_blocks_needed,
       s.num_blocks_free_unhashed::BIGINT + s.num_blocks_free_cached::BIGINT AS num_blocks_free,
       stop_reason_name(s.stop_reason) AS stop_reason
FROM happened h
LEFT JOIN steps s ON s.engine = {engine} AND s.step = h.step
ORDER BY h.seq
""".strip()


def intervals(engine: int, request: int) -> str:
    """Returns the stretches of its life."""
    return f"""
SELECT phase, reason, start_ts, end_ts, duration_ns, is_open, nth, start_step
FROM request_intervals
WHERE engine = {engine} AND request = {request}
ORDER BY start_ts, phase
""".strip()
