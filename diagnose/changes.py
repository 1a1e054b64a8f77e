"""Which change of state made preemptions rise: each candidate confirmed or rejected by a number.

What happened is shared out by replaying the load without it (`attribution`): the cause is the
change with the greatest share. Where no replay is to be had, one test decides for all that have a
size: demand is `requests running x blocks of each at full length`, and a candidate is confirmed if
it did change and if, put back alone to what it was, the demand would have fitted the pool. So a
full cache is never a cause, and a change that happened but does not explain the count is not one
either.

Where nothing changed and more requests are let in than the pool holds to their end, the cause is
that setting. Otherwise it is `undetermined`, and the sentence says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from diagnose.accounting import Accounting
from diagnose.capacity import Capacity, measure_capacity
from diagnose.causes.attribution import WORK_LIMIT, Attribution, attribute
from diagnose.causes.candidates import JUDGES
from diagnose.causes.change import Case, Change
from diagnose.causes.history import read_history
from diagnose.causes.traffic import read_traffic
from diagnose.episodes import Episode
from diagnose.facts import EngineSettings
from diagnose.finding import Cause, Confidence, Level, Rejected, Share
from diagnose.reading import NS, QueryLog, Scope
from diagnose.words import count, percent

LOOK_BACK_NS = 15 * 60 * NS
"""How long before the first preemption a change is looked for. Starting value."""
MIN_PREEMPTIONS = 8
"""Fewer are not shared out: a replay scatters by more than that."""
MIN_MAIN_SHARE = 0.25
"""From here on a change is the cause, also where more is unexplained. Starting value."""
MAX_REST = 0.25
"""With more than this unexplained nobody can be sure of the cause. Starting value."""
NOT_REPLAYED = "how much of it the cause explains has not been replayed"
MIN_SHARE = 0.05
"""A change that accounts for less is told with the others. Half of what shares are good for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The cause of an episode, how sure that is, and every candidate with its number."""

    cause: Cause
    confidence: Confidence
    headline: str
    changes: tuple[Change, ...]
    """Every candidate, with the preemptions charged to it."""
    attribution: Attribution
    capacity: Capacity
    traffic_sql: str

    @property
    def shares(self) -> tuple[Share, ...]:
        """What each change accounts for; none where that was not worked out."""
        return self.attribution.shares

    @property
    def main_change(self) -> Change | None:
        """The change that is the cause; `None` where none is."""
        named = (change for change in self.changes if change.status == "confirmed")
        return next((change for change in named if change.kind == self.cause.kind), None)

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
    work_limit: int | None = WORK_LIMIT,
) -> Explanation:
    """Returns the cause of an episode's preemptions, with all candidates judged.

    `work_limit` is of `attribution.attribute`; 0 asks for no replay at all.
    """
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
    if account.num_rows < MIN_PREEMPTIONS:
        few = f"{account.num_rows} preemptions are too few for shares"
        return _conclude(case, changes, Attribution(why=few))
    if work_limit == 0:
        return _conclude(case, changes, Attribution(why=NOT_REPLAYED))
    return _conclude(case, changes, attribute(case, changes, work_limit))


def _conclude(case: Case, changes: tuple[Change, ...], attribution: Attribution) -> Explanation:
    if attribution.shares:
        changes = tuple(_shared(change, attribution) for change in changes)
        weights = {share.name: share.ratio for share in attribution.shares}
    else:
        weights = {change.name: change.relief for change in changes}
    confirmed = sorted(
        (change for change in changes if change.status == "confirmed"),
        key=lambda change: -weights[change.name],
    )
    cause, headline = _cause(case, confirmed, attribution)
    if not attribution.shares and confirmed:
        charged = replace(confirmed[0], num_preemptions=case.account.num_rows)
        changes = tuple(charged if change is confirmed[0] else change for change in changes)
    return Explanation(
        cause=cause,
        confidence=_confidence(case, cause, confirmed, attribution),
        headline=headline,
        changes=changes,
        attribution=attribution,
        capacity=case.capacity,
        traffic_sql=case.traffic.sql,
    )


def _shared(change: Change, attribution: Attribution) -> Change:
    """Returns a candidate as the replays without it judge it."""
    share = next((s for s in attribution.shares if s.name == change.name), None)
    if share is not None and share.ratio >= MIN_SHARE:
        return replace(change, status="confirmed", num_preemptions=round(share.num))
    left = dict(attribution.without).get(change.name)
    num = 0 if share is None else round(share.num)
    if left is None or attribution.num_replayed is None:
        return replace(change, status="rejected") if change.status == "confirmed" else change
    number = f"{change.number}; {left:,.0f} of {attribution.num_replayed:,.0f} also without"
    return replace(change, status="rejected", number=number, num_preemptions=num)


def _cause(case: Case, confirmed: list[Change], attribution: Attribution) -> tuple[Cause, str]:
    """Returns the cause: the greatest share, unless it is small and a setting explains the rest."""
    if confirmed:
        first = confirmed[0]
        cause = Cause(kind=first.kind, sentence=_sentence(first))
        headline = first.headline or f"{_capital(first.name)}: {first.number}."
        ratio = attribution.ratio_of(first)
        if ratio is None or ratio >= min(attribution.unexplained_ratio, MIN_MAIN_SHARE):
            return cause, headline
        setting = _without_change(case.capacity, "no change explains more")
        return setting if setting[0].kind == "setting" else (cause, headline)
    more = "no change explains more" if attribution.shares else "nothing changed"
    return _without_change(case.capacity, more)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(change: Change) -> str:
    return f"{change.name}: {change.number}"


def _without_change(capacity: Capacity, nothing: str) -> tuple[Cause, str]:
    holds, slots, blocks = capacity.holds, capacity.slots, capacity.peak_blocks
    if holds is None or slots is None or blocks is None or capacity.pool is None:
        why = "pool, block size or max_num_seqs is not recorded"
        return Cause(kind="undetermined", sentence=f"undetermined: {why}"), (
            "Requests were evicted for want of KV blocks; why is not in the record."
        )
    if slots > holds and blocks > capacity.pool:
        sentence = (
            f"setting: max_num_seqs lets in {slots}, the pool of {capacity.pool:,} blocks holds "
            f"{holds}; {nothing}"
        )
        headline = (
            f"The KV pool holds {holds} {capacity.these} to their end; "
            f"max_num_seqs lets in {slots}."
        )
        return Cause(kind="setting", sentence=sentence), headline
    sentence = (
        f"undetermined: {capacity.peak_running} requests need {blocks:,} of {capacity.pool:,} "
        f"blocks at full length, and {nothing}"
    )
    return Cause(kind="undetermined", sentence=sentence), (
        "Requests were evicted for want of KV blocks, though at full length they should fit."
    )


def _confidence(
    case: Case, cause: Cause, confirmed: list[Change], attribution: Attribution
) -> Confidence:
    account = case.account
    replayed = f"; {attribution.why}" if attribution.why else ""
    if cause.kind == "undetermined":
        return _sure("low", f"no change of state and no setting explains the count{replayed}")
    if account.equals_counter is False:
        return _sure("medium", f"{count(account.unattributed)} preemptions are not in the record")
    if case.capacity.num_measured < 5:
        return _sure("medium", f"the lengths of only {case.capacity.num_measured} requests known")
    if attribution.shares:
        rest = attribution.unexplained_ratio
        level: Level = "high" if rest < MAX_REST or cause.kind == "setting" else "medium"
        return _sure(level, f"{percent(rest)} unexplained{replayed}")
    if len(confirmed) > 1:
        others = ", ".join(change.name for change in confirmed[1:])
        return _sure("medium", f"{others} changed as well{replayed}")
    if account.equals_counter is None:
        return _sure("medium", "the scheduler's own counter is not recorded")
    told = f"{account.num_rows:,} of {account.counter:,} preemptions attributed"
    if attribution.why == NOT_REPLAYED and cause.kind != "setting":
        return _sure("medium", f"{told}{replayed}")
    return _sure("high", told)


def _sure(level: Level, why: str) -> Confidence:
    return Confidence(level=level, why=why)
