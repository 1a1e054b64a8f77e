"""Which change of state made preemptions rise: each candidate confirmed or rejected by a number.

One test for all that have a size: demand is `requests running x blocks of each at full length`.
A candidate is confirmed if it did change and if, put back alone to what it was, the demand would
have fitted the pool. So a full cache is never a cause, and a change that happened but does not
explain the count is not one either.

Where nothing changed and more requests are let in than the pool holds to their end, the cause is
that setting. Otherwise it is `undetermined`, and the sentence says why. Shares between several
causes are not worked out here: all preemptions are charged to the one that explains most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from diagnose.accounting import Accounting
from diagnose.candidates import JUDGES
from diagnose.capacity import Capacity, measure_capacity
from diagnose.change import Case, Change
from diagnose.episodes import Episode
from diagnose.facts import EngineSettings
from diagnose.finding import Cause, Confidence, Level, Rejected
from diagnose.history import read_history
from diagnose.reading import NS, QueryLog, Scope
from diagnose.traffic import read_traffic
from diagnose.words import count

LOOK_BACK_NS = 15 * 60 * NS
"""How long before the first preemption a change is looked for. Starting value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The cause of an episode, how sure that is, and every candidate with its number."""

    cause: Cause
    confidence: Confidence
    headline: str
    changes: tuple[Change, ...]
    capacity: Capacity
    traffic_sql: str

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The candidates that were not it."""
        return tuple(
            Rejected(kind=change.kind, name=change.name, number=change.number)
            for change in self.changes
            if change.status == "rejected"
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """Candidates that could not be judged, and why."""
        return tuple(
            f"{change.name}: {change.number}"
            for change in self.changes
            if change.status == "not_measured"
        )


def explain(
    log: QueryLog,
    episode: Episode,
    settings: EngineSettings,
    account: Accounting,
    *,
    max_running: int | None = None,
) -> Explanation:
    """Returns the cause of an episode's preemptions, with all candidates judged."""
    start = max(episode.opened_ts - LOOK_BACK_NS, settings.started_ts or 0)
    context = Scope(settings.engine, start, max(episode.stretch.end_ts, episode.last_ts))
    traffic = read_traffic(log, context, settings)
    case = Case(
        log=log,
        scope=context,
        episode=episode,
        settings=settings,
        account=account,
        history=read_history(log, context, settings),
        traffic=traffic,
        capacity=measure_capacity(traffic, settings, episode.opened_ts, episode.last_ts),
        max_running=max_running,
    )
    changes = tuple(judge(case) for judge in JUDGES)
    return _conclude(case, changes)


def _conclude(case: Case, changes: tuple[Change, ...]) -> Explanation:
    confirmed = sorted(
        (change for change in changes if change.status == "confirmed"), key=lambda c: -c.relief
    )
    cause, headline = (
        (Cause(kind=confirmed[0].kind, sentence=_sentence(confirmed[0])), confirmed[0].headline)
        if confirmed
        else _without_change(case.capacity)
    )
    charged = case.account.num_rows
    changes = tuple(
        replace(change, num_preemptions=charged) if change.kind == cause.kind else change
        for change in changes
    )
    return Explanation(
        cause=cause,
        confidence=_confidence(case, cause, confirmed),
        headline=headline,
        changes=changes,
        capacity=case.capacity,
        traffic_sql=case.traffic.sql,
    )


def _sentence(change: Change) -> str:
    return f"{change.name}: {change.number}"


def _without_change(capacity: Capacity) -> tuple[Cause, str]:
    holds, slots, blocks = capacity.holds, capacity.slots, capacity.peak_blocks
    if holds is None or slots is None or blocks is None or capacity.pool is None:
        why = "pool, block size or max_num_seqs is not recorded"
        return Cause(kind="undetermined", sentence=f"undetermined: {why}"), (
            "Requests were evicted for want of KV blocks; why is not in the record."
        )
    if slots > holds and blocks > capacity.pool:
        sentence = (
            f"setting: max_num_seqs lets in {slots}, the pool of {capacity.pool:,} blocks holds "
            f"{holds}; nothing changed"
        )
        headline = (
            f"The KV pool holds {holds} {capacity.these} to their end; "
            f"max_num_seqs lets in {slots}."
        )
        return Cause(kind="setting", sentence=sentence), headline
    sentence = (
        f"undetermined: {capacity.peak_running} requests need {blocks:,} of {capacity.pool:,} "
        "blocks at full length, and nothing changed"
    )
    return Cause(kind="undetermined", sentence=sentence), (
        "Requests were evicted for want of KV blocks, though at full length they should fit."
    )


def _confidence(case: Case, cause: Cause, confirmed: list[Change]) -> Confidence:
    account = case.account
    if cause.kind == "undetermined":
        return _sure("low", "no change of state and no setting explains the count")
    if account.equals_counter is False:
        return _sure("medium", f"{count(account.unattributed)} preemptions are not in the record")
    if case.capacity.num_measured < 5:
        return _sure("medium", f"the lengths of only {case.capacity.num_measured} requests known")
    if len(confirmed) > 1:
        others = ", ".join(change.name for change in confirmed[1:])
        return _sure("medium", f"{others} changed as well; shares are not worked out")
    if account.equals_counter is None:
        return _sure("medium", "the scheduler's own counter is not recorded")
    return _sure("high", f"{account.num_rows:,} of {account.counter:,} preemptions attributed")


def _sure(level: Level, why: str) -> Confidence:
    return Confidence(level=level, why=why)
