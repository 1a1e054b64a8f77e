"""How stored findings stand now: open or over, acknowledged or silenced, and their story.

What a person says changes nothing of a finding: it is found, stored and counted as before. Only who
is told of it changes (`FindingState.is_muted`).

A finding whose engine has ended, or whose log nobody writes any more, is not open now, and nobody
saw it clear: it *ended*, open when the record did. The analyst stores that where it can; where it
was ended first, the end is read from the log here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from diagnose.finding import CauseKind, Severity, Share
from diagnose.life.ends import OVER, read_ends
from diagnose.life.shares import shares_in
from diagnose.reading import QueryLog, read_rows

if TYPE_CHECKING:
    from telemetry.store import Log

CAUSE_KINDS = frozenset(get_args(CauseKind))
_STATES = "FROM finding_states ORDER BY status = 'cleared', changed_ts DESC"
_CHANGES = "FROM finding_changes WHERE ts > {since} ORDER BY ts"
_SILENCES = "FROM finding_silences WHERE until_ts > {now} ORDER BY until_ts"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingState:
    """A row of the view `finding_states`; its columns are explained there.

    `ended_ts` and `ended_by` are when and how the record ended under an open finding (`ends.End`);
    `None` while it goes on, and where the finding has cleared.
    """

    engine: int
    finding: str
    rule: str
    rule_version: int | None
    severity: Severity
    status: str
    opened_ts: int
    cleared_ts: int | None
    first_opened_ts: int
    changed_ts: int
    event: str
    reason: str | None
    num_openings: int
    num_changes: int
    acknowledged_ts: int | None
    acknowledged_by: str | None
    acknowledged_note: str | None
    silenced_until_ts: int | None
    silenced_by: str | None
    silenced_note: str | None
    sentence: str | None
    body: str | None
    ended_ts: int | None = None
    ended_by: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is so now, or comes and goes."""
        return self.status not in OVER

    @property
    def rank(self) -> int:
        """Its place in a list: open ones, those that ended open, those that cleared."""
        return 0 if self.is_open else 1 + OVER[::-1].index(self.status)

    @property
    def shares(self) -> list[dict[str, Any]]:
        """What each change accounts for, as it was last worked out; empty where it was not."""
        return shares_in(self.document)

    @property
    def told_shares(self) -> tuple[Share, ...]:
        """The same as a finding has them; a kind that nobody knows is as good as none."""
        return tuple(
            Share(
                kind=share.get("kind") if share.get("kind") in CAUSE_KINDS else None,
                name=share["name"],
                num=share["num"],
                ratio=share["ratio"],
            )
            for share in self.shares
        )

    @property
    def shared_ts(self) -> int | None:
        """Up to which moment its shares were replayed; `None` where that is not stored."""
        stored = self.document.get("shared_ts")
        return stored if isinstance(stored, int) and not isinstance(stored, bool) else None

    @property
    def document(self) -> dict[str, Any]:
        """The whole finding as it was last told: one of `diagnose --json`'s `findings`."""
        found: dict[str, Any] = json.loads(self.body or "{}")
        return found

    def is_silenced(self, now: int) -> bool:
        """Returns whether somebody has silenced it for this moment (ns, wall clock)."""
        return self.silenced_until_ts is not None and now < self.silenced_until_ts

    def is_muted(self, now: int) -> bool:
        """Returns whether nobody is to be told of it now: acknowledged, or silenced."""
        return self.acknowledged_ts is not None or self.is_silenced(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A row of the view `finding_silences`: engine or rule `None` is any."""

    engine: int | None
    rule: str | None
    since_ts: int
    until_ts: int
    author: str
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """A row of the view `finding_changes`; its columns are explained there."""

    engine: int | None
    finding: str | None
    ts: int
    event: str
    status: str | None
    rule: str | None
    severity: Severity | None
    opened_ts: int | None
    cleared_ts: int | None
    num_openings: int | None
    reason: str | None
    author: str | None
    note: str | None
    until_ts: int | None
    sentence: str | None


def is_closed(log: Log) -> bool:
    """Returns whether nobody writes a log any more; of one on another machine that is not known."""
    from telemetry.store.token import remote_address

    return not log.is_live and remote_address(log.target) is None


def read_states(log: QueryLog, *, is_closed: bool = False) -> list[FindingState]:
    """Returns every stored finding: open ones first, then the worst, then the newest change.

    Args:
        log: the log.
        is_closed: nobody writes it any more, so that nothing of it is open now.
    """
    states = [FindingState(**_with_severity(row)) for row in read_rows(log, _STATES)]
    states = _with_ends(log, states, is_closed)
    return sorted(states, key=lambda state: (state.rank, -state.severity))


def _with_ends(log: QueryLog, states: list[FindingState], is_closed: bool) -> list[FindingState]:
    """Returns the states, those as ended of which the record ended while they were open."""
    asked = {state.engine for state in states if state.status != "cleared"}
    ends = read_ends(log, asked, is_closed=is_closed)
    return [
        replace(state, status="ended", ended_ts=end.ts, ended_by=end.kind)
        if state.status != "cleared" and (end := ends.get(state.engine)) is not None
        else state
        for state in states
    ]


def read_changes(log: QueryLog, since_ts: int = 0) -> list[StoredChange]:
    """Returns what happened to findings after a moment (wall clock), in order."""
    rows = read_rows(log, _CHANGES.format(since=since_ts))
    return [
        StoredChange(
            **{name: value for name, value in _with_severity(row).items() if name != "ts_utc"}
        )
        for row in rows
    ]


def read_silences(log: QueryLog, now: int) -> list[Silence]:
    """Returns the silences in force at a moment (wall clock), the next to end first."""
    return [Silence(**row) for row in read_rows(log, _SILENCES.format(now=now))]


def _with_severity(row: Mapping[str, Any]) -> dict[str, Any]:
    named = row["severity"]
    return {**row, "severity": None if named is None else Severity[named]}
