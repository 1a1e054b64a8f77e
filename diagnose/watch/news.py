"""What is new of findings, and who is to be told: changes come in, notices go out.

A finding that somebody has acknowledged or silenced is not told. Its end is, where its beginning
was; and one that is still open when its silence ends is told then. What replays found (`explained`)
is told of what was told. One whose engine has ended is told as ended: by the analyst, and where
none is there any more, a while after the engine's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from diagnose.finding import Severity
from diagnose.life.state import FindingState, StoredChange, read_changes, read_states
from diagnose.reading import NS, QueryLog, read_row

Kind = Literal[
    "open", "opened", "explained", "updated", "reopened", "flapping", "settled", "cleared", "ended"
]
"""What a notice tells; `open`: it was open before, and is told now."""

OVERLAP_NS = 60 * NS
"""Changes of several writers need not come in order of their times."""
END_NS = 30 * NS
"""How long after an engine's end its findings are left to the analyst, which knows more of them."""
_MARK = "SELECT max(ts) AS newest, count(*) AS num FROM findings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something to tell of a finding. `state` is how it stands now, which may be later."""

    kind: Kind
    ts: int
    severity: Severity
    opened_ts: int
    cleared_ts: int | None
    num_openings: int
    reason: str
    sentence: str
    state: FindingState

    @property
    def is_end(self) -> bool:
        """Whether it tells that the finding has cleared, or that its engine has ended."""
        return self.kind in ("cleared", "ended")


@dataclass(slots=True)
class News:
    """Reads a log again and again. `level` is the mildest severity that is told.

    `is_closed` says that nobody writes the log any more: then nothing of it is open.
    """

    level: Severity = Severity.medium
    is_closed: bool = False
    num_ended: int = 0
    """Findings that were open when their record ended, by the last look."""
    told_open: set[tuple[int, str]] = field(default_factory=set)
    """Findings that were told and have not been told to be over."""
    sayings: list[StoredChange] = field(default_factory=list)
    """What people said since the last look: shown on a terminal, and never a notice."""
    _seen: dict[tuple[object, ...], int] = field(default_factory=dict)
    _mark: tuple[object, ...] | None = None
    _since: int | None = None

    def read(self, log: QueryLog, now: int) -> list[Notice]:
        """Returns what is to be told at this moment (wall clock), in order.

        The first look tells what is open.
        """
        mark = tuple(read_row(log, _MARK).values())
        is_first, changes = self._since is None, list[StoredChange]()
        if mark != self._mark:
            changes = self._take_note(read_changes(log, (self._since or 0) - OVERLAP_NS))
        stored = read_states(log, is_closed=self.is_closed)  # not older than the changes
        states = {_place(state): state for state in stored}
        self.num_ended = sum(state.status == "ended" for state in stored)
        self._mark, self.sayings = mark, []
        notices = [] if is_first else list(self._of_changes(changes, states))
        notices += self._of_open(stored, now)
        notices += self._of_ended(stored, now)
        return notices

    def _take_note(self, changes: Iterable[StoredChange]) -> list[StoredChange]:
        """Returns the changes that were not seen before."""
        new = []
        for change in changes:
            key = (change.engine, change.finding, change.rule, change.ts, change.event)
            if key not in self._seen:
                new.append(change)
            self._seen[key] = change.ts
        self._since = max([self._since or 0, *(change.ts for change in new)])
        oldest = self._since - 2 * OVERLAP_NS
        self._seen = {key: ts for key, ts in self._seen.items() if ts > oldest}
        return new

    def _of_changes(
        self, changes: Iterable[StoredChange], states: dict[tuple[int, str], FindingState]
    ) -> Iterator[Notice]:
        for change in changes:
            if change.status is None:
                self.sayings.append(change)
            elif (notice := _of_change(change, states)) is not None and self._is_told(notice):
                yield self._told(notice)

    def _is_told(self, notice: Notice) -> bool:
        """Returns whether a change is told: a silence that has ended since held when it came."""
        was_told = _place(notice.state) in self.told_open
        if notice.is_end:
            return was_told
        if notice.kind == "explained":
            return was_told and notice.state.is_open and not notice.state.is_muted(notice.ts)
        if was_told and notice.kind in ("opened", "reopened"):
            return False  # it was found open before its change was
        return notice.severity >= self.level and not notice.state.is_muted(notice.ts)

    def _of_open(self, states: Iterable[FindingState], now: int) -> Iterator[Notice]:
        """Yields what is open and was not told yet: at the beginning, and after a silence."""
        for state in states:
            is_noted = state.changed_ts <= (self._since or 0)  # a newer change tells it better
            is_new = state.is_open and is_noted and _place(state) not in self.told_open
            if is_new and state.severity >= self.level and not state.is_muted(now):
                yield self._told(_of_state(state, "open", now))

    def _of_ended(self, states: Iterable[FindingState], now: int) -> Iterator[Notice]:
        """Yields what was told as open, and whose engine ended without anybody telling more."""
        for state in states:
            was_told = state.status == "ended" and _place(state) in self.told_open
            if was_told and now - (state.ended_ts or now) > END_NS:
                yield self._told(_of_state(state, "ended", now))

    def _told(self, notice: Notice) -> Notice:
        place = _place(notice.state)
        (self.told_open.discard if notice.is_end else self.told_open.add)(place)
        return notice


def _place(state: FindingState) -> tuple[int, str]:
    return state.engine, state.finding


def _of_change(change: StoredChange, states: dict[tuple[int, str], FindingState]) -> Notice | None:
    """Returns what a stored change tells; `None` for one that an incomplete row tells."""
    state = states.get((change.engine or 0, change.finding or ""))
    if state is None or change.severity is None or change.opened_ts is None:
        return None
    return Notice(
        kind=change.event,  # type: ignore[arg-type]
        ts=change.ts,
        severity=change.severity,
        opened_ts=change.opened_ts,
        cleared_ts=change.cleared_ts,
        num_openings=change.num_openings or 1,
        reason=change.reason or "",
        sentence=change.sentence or "",
        state=state,
    )


def _of_state(state: FindingState, kind: Kind, now: int) -> Notice:
    return Notice(
        kind=kind,
        ts=now,
        severity=state.severity,
        opened_ts=state.opened_ts,
        cleared_ts=state.cleared_ts,
        num_openings=state.num_openings,
        reason=state.reason or "",
        sentence=state.sentence or "",
        state=state,
    )
