"""A candidate for a cause: what it is judged on, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diagnose.accounting import Accounting
from diagnose.capacity import Capacity
from diagnose.causes.history import History
from diagnose.causes.traffic import Traffic
from diagnose.causes.undo import Undo
from diagnose.episodes import Episode
from diagnose.facts import EngineSettings
from diagnose.finding import CauseKind
from diagnose.reading import QueryLog, Scope

MAJORITY = 0.5
"""Share of the preemptions, or of the pool, from which one thing counts as the reason."""

Status = Literal["confirmed", "rejected", "not_measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One candidate, what became of it and the number that decided.

    `relief` is by how much the demand on the pool falls when it alone is put back. `began_ts` is
    when it began, and `undo` how it is taken out of the recorded load; both `None` where it did not
    happen, or nobody knows how.
    """

    kind: CauseKind
    name: str
    status: Status
    number: str
    headline: str = ""
    relief: float = 0.0
    num_preemptions: int = 0
    began_ts: int | None = None
    undo: Undo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What every candidate is judged on."""

    log: QueryLog
    scope: Scope
    """The engine, from where changes are looked for to the end of the episode's stretch."""
    episode: Episode
    settings: EngineSettings
    account: Accounting
    history: History
    traffic: Traffic
    capacity: Capacity
    max_running: int | None
    """Most requests that ran at once in the stretch."""

    @property
    def context_start_ts(self) -> int:
        """From when on changes are looked for."""
        return self.scope.start_ts

    def fits(self, num_requests: float, blocks: float, pool: int | None = None) -> bool:
        """Whether so many requests of so many blocks fit the pool (this one, or another)."""
        pool = self.capacity.pool if pool is None else pool
        slots = self.capacity.slots
        running = num_requests if slots is None else min(num_requests, slots)
        return pool is not None and running * blocks <= pool


def rejected(
    kind: CauseKind,
    name: str,
    number: str,
    *,
    began_ts: int | None = None,
    undo: Undo | None = None,
) -> Change:
    """Returns a candidate that was not it; with `undo` where it did happen all the same."""
    return Change(
        kind=kind, name=name, status="rejected", number=number, began_ts=began_ts, undo=undo
    )


def unknown(kind: CauseKind, name: str, number: str) -> Change:
    """Returns a candidate that could not be judged, and what is missing."""
    return Change(kind=kind, name=name, status="not_measured", number=number)
