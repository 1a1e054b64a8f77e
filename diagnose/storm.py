"""The worst episode of preemptions of a window, with its own account and what users felt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from diagnose.accounting import Accounting, account
from diagnose.attribution import WORK_LIMIT
from diagnose.changes import Explanation, explain
from diagnose.episodes import SHORTAGES_SQL, Episode, read_episodes
from diagnose.facts import EngineSettings, StepFacts, read_step_facts
from diagnose.finding import Span
from diagnose.reading import QueryLog, Scope, read_row

PAUSES_SQL = """
SELECT count(max_itl_ns) FILTER (num_preemptions > 0) AS num_evicted,
       count(max_itl_ns) FILTER (num_preemptions = 0) AS num_calm,
       (quantile_cont(max_itl_ns, 0.95) FILTER (num_preemptions > 0))::BIGINT AS evicted_p95_ns,
       (quantile_cont(max_itl_ns, 0.95) FILTER (num_preemptions = 0))::BIGINT AS calm_p95_ns,
       quantile_cont(max_itl_ns, 0.99)::BIGINT AS all_p99_ns,
       (quantile_cont(max_itl_ns, 0.99) FILTER (num_preemptions = 0))::BIGINT AS calm_p99_ns
FROM requests
WHERE engine = {engine} AND finished_ts BETWEEN {start} AND {end}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Longest pauses inside answers, of requests that were evicted and of the others."""

    num_evicted: int
    num_calm: int
    evicted_p95_ns: int | None
    calm_p95_ns: int | None
    all_p99_ns: int | None
    calm_p99_ns: int | None

    @property
    def tail_ratio(self) -> float | None:
        """p99 of all requests' longest pauses, as a multiple of that of those never evicted."""
        if self.all_p99_ns is None or not self.calm_p99_ns:
            return None
        return self.all_p99_ns / self.calm_p99_ns


@dataclass(frozen=True)
class Storm:
    """An episode of preemptions for want of blocks."""

    log: QueryLog
    settings: EngineSettings
    episode: Episode
    account: Accounting
    steps: StepFacts
    pauses: Pauses
    pauses_sql: str
    num_others: int
    """Further episodes in the window."""
    work_limit: int | None
    """Scheduler steps that may be replayed to share its preemptions out; `None`: no limit."""

    @cached_property
    def explanation(self) -> Explanation:
        """Which change of state made it."""
        return explain(
            self.log,
            self.episode,
            self.settings,
            self.account,
            max_running=self.steps.max_running,
            work_limit=self.work_limit,
        )

    @property
    def span(self) -> Span:
        """From the first preemption to the last, if it is over."""
        return Span(opened_ts=self.episode.opened_ts, cleared_ts=self.episode.cleared_ts)

    @property
    def num_judged_requests(self) -> int:
        """Requests that ended in the stretch; where none did, those that were there."""
        return self.account.num_finished or self.account.num_requests

    @property
    def per_request(self) -> float:
        """Preemptions for want of blocks for each such request."""
        return self.account.num_from_kv / max(self.num_judged_requests, 1)

    @property
    def affected_ratio(self) -> float:
        """Share of the requests of the stretch that were evicted."""
        return self.account.num_affected / max(self.account.num_requests, 1)

    @property
    def step_ratio(self) -> float | None:
        """Share of the working steps of the stretch that preempted."""
        if self.steps.num_preempting_steps is None or not self.steps.num_working_steps:
            return None
        return self.steps.num_preempting_steps / self.steps.num_working_steps


def read_storm(
    log: QueryLog,
    scope: Scope,
    settings: EngineSettings,
    *,
    stopped_ts: int | None,
    work_limit: int | None = WORK_LIMIT,
) -> Storm | None:
    """Returns the worst episode that reaches into the window; an open one before all others."""
    episodes = read_episodes(log, scope, SHORTAGES_SQL, stopped_ts=stopped_ts)
    if not episodes:
        return None
    stretch = episodes[0].stretch
    saw_start = settings.started_ts is not None and settings.started_ts >= stretch.start_ts
    sql = stretch.fill(PAUSES_SQL)
    return Storm(
        log=log,
        settings=settings,
        episode=episodes[0],
        account=account(log, stretch, saw_start=saw_start),
        steps=read_step_facts(log, stretch, saw_start=saw_start),
        pauses=Pauses(**read_row(log, sql)),
        pauses_sql=sql,
        num_others=len(episodes) - 1,
        work_limit=work_limit,
    )
