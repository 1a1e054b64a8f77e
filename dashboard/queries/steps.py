"""The statements behind the list of notable steps and the inspector of one."""

from __future__ import annotations

from enum import Enum

from diagnose.reading import Scope

MAX_LISTED = 200
FREE = "(num_blocks_free_unhashed::BIGINT + num_blocks_free_cached::BIGINT)"


class Notable(Enum):
    """What makes a step worth a look: a rank, and the steps that are ranked at all."""

    EVICTED = ("num_preempted", "num_preempted > 0")
    LONGEST = ("updated_ts - ts", "num_repeats = 1 AND updated_ts IS NOT NULL")
    NOTHING = ("num_repeats", "num_scheduled_tokens = 0 AND num_waiting > 0")
    SHORT = (f"head_blocks_needed::BIGINT - {FREE}", f"head_blocks_needed > {FREE}")

    @property
    def rank(self) -> str:
        """SQL of the number that the steps are sorted by, largest first."""
        return self.value[0]

    @property
    def where(self) -> str:
        """SQL of the condition."""
        return self.value[1]


def notable(scope: Scope, kind: Notable, limit: int = MAX_LISTED) -> str:
    """Returns the steps of one kind, the most notable first, and how many there are in all."""
    return f"""
SELECT step::BIGINT AS step, strftime(utc(ts), '%H:%M:%S.%g') AS time,
       (updated_ts - ts) / 1e6 AS took_ms, num_repeats::BIGINT AS num_repeats,
       num_running, num_waiting, num_preempted, num_scheduled_tokens,
       {FREE} AS num_blocks_free, head_blocks_needed, stop_reason_name(stop_reason) AS stop_reason,
       count(*) OVER () AS num_all
FROM steps
WHERE {scope.where()} AND {kind.where}
ORDER BY {kind.rank} DESC, ts
LIMIT {limit}
""".strip()


def neighbours(engine: int, step: int) -> str:
    """Returns where one may go from a step: before, after, next preemption, next stop reason."""
    later = f"engine = {engine} AND step > {step}"
    return f"""
SELECT (SELECT max(step) FROM steps WHERE engine = {engine} AND step < {step})::BIGINT AS before,
       (SELECT min(step) FROM steps WHERE {later})::BIGINT AS after,
       (SELECT min(step) FROM steps WHERE {later} AND num_preempted > 0)::BIGINT AS preemption,
       (SELECT min(step) FROM steps
        WHERE {later} AND stop_reason IS DISTINCT FROM (
          SELECT stop_reason FROM steps WHERE engine = {engine} AND step = {step}
        ))::BIGINT AS stop_change
""".strip()


def state_before(engine: int, step: int) -> str:
    """Returns what the step right before left behind; no row where it is not recorded."""
    return f"""
SELECT num_running::BIGINT AS num_running, num_waiting::BIGINT AS num_waiting,
       {FREE} AS num_blocks_free, stop_reason_name(stop_reason) AS stop_reason
FROM steps
WHERE engine = {engine} AND step < {step} AND step + num_repeats >= {step}
ORDER BY step DESC
LIMIT 1
""".strip()


def waiting_requests(engine: int, ts: int, limit: int) -> str:
    """Returns who waits once a step is scheduled, why, and how often each was evicted so far."""
    return f"""
SELECT w.request::BIGINT AS request, w.wait_reason, count(p.seq) AS times,
       count(*) OVER () AS num_all
FROM wait_reasons_between({ts}, {ts}) w
LEFT JOIN preemptions p ON p.engine = w.engine AND p.request = w.request AND p.step <= w.step
WHERE w.engine = {engine}
GROUP BY w.request, w.wait_reason
ORDER BY w.request
LIMIT {limit}
""".strip()
