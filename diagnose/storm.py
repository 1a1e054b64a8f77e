"""The worst episode of preemptions of a window, with its own account and what users felt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from diagnose.accounting import Accounting, account
from diagnose.causes.attribution import WORK_LIMIT
from diagnose.changes import Explanation, explain
from diagnose.episodes import SHORTAGES_SQL, Episode, read_episodes
from diagnose.facts import EngineSettings, StepFacts, read_step_facts
from diagnose.finding import Span
from diagnose.pauses import PAUSES_SQL, Pauses
from diagnose.reading import QueryLog, Scope


@dataclass(frozen=True)
class Storm:
    """An episode of preemptions for want of blocks."""

    log: QueryLog
    settings: EngineSettings
    episode: Episode
    account: Accounting
    steps: StepFacts
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
    def pauses(self) -> Pauses:
        """What users felt in the stretch."""
        return self.account.pauses

    @property
    def pauses_sql(self) -> str:
        """The statement that gives the pauses again."""
        return self.episode.stretch.fill(PAUSES_SQL)

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
    return Storm(
        log=log,
        settings=settings,
        episode=episodes[0],
        account=account(log, stretch, saw_start=saw_start),
        steps=read_step_facts(log, stretch, saw_start=saw_start),
        num_others=len(episodes) - 1,
        work_limit=work_limit,
    )
