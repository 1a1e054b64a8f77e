"""The statements behind the page that explains preemptions."""

from __future__ import annotations

from diagnose.reading import Scope

MAX_VICTIMS = 400


def evidence(scope: Scope) -> str:
    """Returns preemptions, tokens and victims by cause."""
    return f"""
SELECT cause, count(*) AS preemptions,
       sum(num_computed_tokens_lost)::BIGINT AS tokens_lost,
       count(DISTINCT request) AS victims,
       count(*) FILTER (request = beneficiary) AS self_evicted,
       count(DISTINCT step) AS steps
FROM preemptions
WHERE {scope.where()}
GROUP BY cause ORDER BY preemptions DESC
""".strip()


def marks(scope: Scope, limit: int) -> str:
    """Returns a row a preemption that had a beneficiary, with both requests' places.

    A place is the arrival number, or the rank by priority and then arrival where they differ.
    """
    return f"""
WITH places AS (
  SELECT request, row_number() OVER (ORDER BY priority, request) - 1 AS place
  FROM requests WHERE engine = {scope.engine} AND ts <= {scope.end_ts}
),
priorities AS (
  SELECT count(DISTINCT priority) > 1 AS differ
  FROM requests WHERE engine = {scope.engine} AND ts <= {scope.end_ts}
)
SELECT p.request, p.beneficiary, p.cause, p.step, strftime(p.ts_utc, '%H:%M:%S.%g') AS time,
       coalesce(p.num_computed_tokens_lost, 0)::BIGINT AS lost,
       CASE WHEN differ THEN v.place ELSE p.request END AS request_place,
       CASE WHEN differ THEN b.place ELSE p.beneficiary END AS beneficiary_place,
       differ AS by_priority
FROM preemptions p
CROSS JOIN priorities
LEFT JOIN places v ON v.request = p.request
LEFT JOIN places b ON b.request = p.beneficiary
WHERE {scope.where("p.ts")} AND p.beneficiary IS NOT NULL
ORDER BY p.seq
LIMIT {limit}
""".strip()


def grid(scope: Scope, cells: int) -> str:
    """Returns the same as cells of a grid, with the number and the tokens lost in each."""
    return f"""
WITH ends AS (
  SELECT min(least(request, beneficiary))::DOUBLE AS low,
         (max(greatest(request, beneficiary)) + 1)::DOUBLE AS high
  FROM preemptions WHERE {scope.where()} AND beneficiary IS NOT NULL
)
SELECT low + v * (high - low) / {cells} AS request_place,
       low + (v + 1) * (high - low) / {cells} AS request_end,
       low + b * (high - low) / {cells} AS beneficiary_place,
       low + (b + 1) * (high - low) / {cells} AS beneficiary_end,
       n, lost, false AS by_priority
FROM (
  SELECT floor((request - low) / (high - low) * {cells}) AS v,
         floor((beneficiary - low) / (high - low) * {cells}) AS b,
         low, high, count(*) AS n, sum(num_computed_tokens_lost)::BIGINT AS lost
  FROM preemptions CROSS JOIN ends
  WHERE {scope.where()} AND beneficiary IS NOT NULL
  GROUP BY ALL
)
""".strip()


def victims(scope: Scope, limit: int = MAX_VICTIMS) -> str:
    """Returns who was hit, hardest first, and who got the blocks, in order."""
    return f"""
SELECT request, any_value(request_id) AS request_id, count(*) AS times,
       sum(num_computed_tokens_lost)::BIGINT AS tokens_lost,
       sum(num_tokens_recomputed)::BIGINT AS recomputed,
       sum(out_ns)::BIGINT AS out_ns,
       string_agg(coalesce(beneficiary::VARCHAR, 'cache reset'), ' ' ORDER BY seq) AS went_to
FROM preemptions
WHERE {scope.where()}
GROUP BY request
ORDER BY times DESC, tokens_lost DESC NULLS LAST, request
LIMIT {limit}
""".strip()


def counter(scope: Scope) -> str:
    """Returns the engine's scraped preemption counter, where scrapes are in the log."""
    return f"""
SELECT (ts - {scope.start_ts}) / 1e6 AS x, sum(value) AS value
FROM samples
WHERE {scope.where()} AND metric LIKE '%num_preemptions%'
GROUP BY ts ORDER BY ts
LIMIT 2000
""".strip()


def cumulative(scope: Scope) -> str:
    """Returns recorded preemptions so far, a row a step that preempted."""
    return f"""
SELECT (min(ts) - {scope.start_ts}) / 1e6 AS x,
       sum(count(*)) OVER (ORDER BY step)::BIGINT AS value
FROM preemptions
WHERE {scope.where()}
GROUP BY step ORDER BY step
LIMIT 2000
""".strip()


def steps_that_preempted(scope: Scope) -> str:
    """Returns in how many steps somebody was preempted."""
    return f"""
SELECT count(DISTINCT step) AS num_steps FROM preemptions WHERE {scope.where()}
""".strip()
