"""When something happened: episodes, not lifetime counts.

An episode is a run of moments with no pause longer than `EPISODE_GAP_NS`. It is judged over a
stretch that reaches `MARGIN_NS` beyond it on both sides, so that one preemption in a calm minute is
one in thousands of steps and not all of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diagnose.finding import Span
from diagnose.reading import NS, QueryLog, Scope, read_row, read_rows

if TYPE_CHECKING:
    from diagnose.rule import Context

EPISODE_GAP_NS = 30 * NS
"""A pause after which preemptions count as over. Starting value: three scrapes of 10 s."""
MARGIN_NS = 15 * NS
"""How far beyond an episode its steps are counted. Starting value: half a gap."""

SHORTAGES_SQL = """
SELECT ts FROM preemptions
WHERE engine = {engine} AND ts <= {end} AND cause IN ('kv_full', 'priority')
  AND coalesce(num_blocks_free_before < num_blocks_needed, true)
"""
"""Moments at which a request was preempted for want of blocks."""

EPISODES_SQL = """
WITH moments AS ({moments}),
runs AS (  -- moments of one bin as long as a gap are never a gap apart: few rows are left to sort
    SELECT min(ts) AS first_ts, max(ts) AS last_ts, count(*) FILTER (ts >= {start}) AS num_moments
    FROM moments GROUP BY ts // {gap}
), marked AS (
    SELECT *, coalesce(first_ts - lag(last_ts) OVER (ORDER BY first_ts) > {gap}, true)::INTEGER
        AS is_first
    FROM runs
), numbered AS (
    SELECT *, sum(is_first) OVER (ORDER BY first_ts ROWS UNBOUNDED PRECEDING) AS episode
    FROM marked
)
SELECT min(first_ts) AS opened_ts, max(last_ts) AS last_ts,
       sum(num_moments)::BIGINT AS num_moments
FROM numbered GROUP BY episode HAVING max(last_ts) >= {start} ORDER BY opened_ts
"""

CLEARED_SQL = """
SELECT count(*) FILTER (num_waiting = 0) > 0 AS drained FROM steps
WHERE engine = {engine} AND ts > {last} AND ts <= {end}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A run of moments.

    `opened_ts` may lie before the window; `num_moments` counts those inside. `cleared_ts` is the
    last one once the queue was empty again, a whole gap passed or the engine ended; else `None`.
    """

    opened_ts: int
    last_ts: int
    cleared_ts: int | None
    num_moments: int
    stretch: Scope

    @property
    def span(self) -> Span:
        """When it was so, for a finding."""
        return Span(opened_ts=self.opened_ts, cleared_ts=self.cleared_ts)

    @property
    def inside(self) -> Scope:
        """The engine and the episode itself, as far as it lies in the window."""
        start = max(self.opened_ts, self.stretch.start_ts)
        return Scope(self.stretch.engine, start, self.last_ts)


def worst_episode(context: Context, moments_sql: str) -> Episode | None:
    """Returns the open episode with most moments, else the closed one; `None` without any."""
    episodes = read_episodes(
        context.log, context.scope, moments_sql, stopped_ts=context.quality.stopped_ts
    )
    return episodes[0] if episodes else None


def read_episodes(
    log: QueryLog, scope: Scope, moments_sql: str, *, stopped_ts: int | None
) -> list[Episode]:
    """Returns the episodes that reach into the window, open ones first, then the worst.

    Args:
        log: where to look.
        scope: engine and window.
        moments_sql: statement that gives the moments as `ts`, with `{engine}`, `{end}` to fill in.
        stopped_ts: when the engine ended, if it did.
    """
    sql = EPISODES_SQL.format(
        moments=scope.fill(moments_sql),
        gap=EPISODE_GAP_NS,
        start=scope.start_ts,
    )
    episodes = [_episode(log, scope, row, stopped_ts) for row in read_rows(log, sql)]
    return sorted(episodes, key=lambda e: (e.cleared_ts is not None, -e.num_moments))


def _episode(log: QueryLog, scope: Scope, row: dict[str, int], stopped_ts: int | None) -> Episode:
    opened, last = row["opened_ts"], row["last_ts"]
    stretch = Scope(
        scope.engine,
        max(scope.start_ts, opened - MARGIN_NS),
        min(scope.end_ts, last + MARGIN_NS),
    )
    return Episode(
        opened_ts=opened,
        last_ts=last,
        cleared_ts=last if _is_cleared(log, scope, last, stopped_ts) else None,
        num_moments=row["num_moments"],
        stretch=stretch,
    )


def _is_cleared(log: QueryLog, scope: Scope, last: int, stopped_ts: int | None) -> bool:
    if scope.end_ts - last >= EPISODE_GAP_NS or (stopped_ts is not None and stopped_ts >= last):
        return True
    sql = CLEARED_SQL.format(engine=scope.engine, last=last, end=scope.end_ts)
    return bool(read_row(log, sql)["drained"])
