"""The life of a finding as a pure machine: what was known and a new look in, changes out.

            opened                    updated: severity, cause or count changed notably
    (new) ─────────► open ◄──┐
                      │ ▲    └ settled: stayed as it is for CALM
              cleared │ │ reopened     │
                      ▼ │              │
                    cleared ──────► flapping: opened FLAP_OPENINGS times in FLAP_WINDOW; told once
                                       └──────► cleared: stayed away for CALM

    open, flapping ──► ended: the engine ended, and nothing says that the finding did before

Whoever is told the changes and nothing else knows the state. A finding that could not be measured
in a look stays as it was: not measured is not fine.

Invariants:
    A finding that is seen open is open or flapping afterwards, and somebody has been told.
    It clears only after it has stayed away for HOLD, or where the log says so by itself: of an
    engine that has ended nothing comes back, so there nothing is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from diagnose.finding import Number, Severity
from diagnose.life.ends import OVER
from diagnose.life.look import Look, Sighting
from diagnose.reading import NS
from diagnose.words import count, duration

Status = Literal["open", "flapping", "cleared", "ended"]
Event = Literal[
    "opened", "updated", "reopened", "cleared", "flapping", "settled", "ended", "explained"
]
"""What is told; `explained` is told by nobody here: what replays found (`sharing`)."""

HOLD_NS = 30 * NS
"""How long a finding stays away before it counts as cleared: three evaluations."""
FLAP_WINDOW_NS = 30 * 60 * NS
FLAP_OPENINGS = 4
"""Openings in FLAP_WINDOW from which they are told as one: four pages in half an hour wake nobody
better than one."""
CALM_NS = 10 * 60 * NS
"""How long a flapping finding stays open, or away, before it is believed."""
UPDATE_NS = 5 * 60 * NS
"""Shortest time between two updates, but for a severity worse than any told since it opened."""
STILL_OPEN_NS = 12 * 3600 * NS
"""After so long an open finding is told again: rows age, and so do people's memories."""
NOTABLE_FACTOR = 2
"""How many times its last told value a count grows to be told again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something to tell, and the state after it. `ts` is when it was told, on the wall clock.

    `opened_ts` and `cleared_ts` are those of the current opening, on the engine's clock.
    """

    ts: int
    event: Event
    status: Status
    sighting: Sighting
    opened_ts: int
    cleared_ts: int | None
    num_openings: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is remembered of a finding. `told` is the last change; the rest is between the looks."""

    told: Change
    worst: Severity
    """Worst severity told since it opened."""
    openings: tuple[int, ...]
    """When it opened lately (wall clock)."""
    num_openings: int
    turned_ts: int
    """When it last came or went (wall clock)."""
    is_active: bool
    """Whether it was there when it was last looked for."""
    last_open_ts: int
    """Newest moment of the log at which it was so."""
    quiet_since: int | None = None
    """Since when it stays away, while that is not told."""


Lives = Mapping[str, Life]
"""Everything that is remembered, by the finding's id."""


def observe(lives: Lives, look: Look) -> tuple[dict[str, Life], list[Change]]:
    """Returns what is remembered after a look, and what is to be told, in order."""
    after, changes = dict(lives), list[Change]()
    for finding in sorted({*lives, *look.sightings}):
        observer = _Observer(look, changes, lives.get(finding))
        observer.see(look.sightings.get(finding))
        assert observer.life is not None
        after[finding] = observer.life
    return after, changes


class _Observer:
    """One finding in one look. `life` is what is known of it so far."""

    def __init__(self, look: Look, changes: list[Change], life: Life | None) -> None:
        self.life = life
        self._look = look
        self._changes = changes

    def see(self, seen: Sighting | None) -> None:
        if self.life is None:
            assert seen is not None
            self.life = self._open(seen)
        if self.life.told.sighting.engine in self._look.ended:
            self.life = self._is_over(self.life, seen)
        elif seen is None and not self._look.has_measured(self.life.told.sighting):
            return
        elif seen is not None and seen.is_open:
            self.life = self._is_there(self.life, seen)
        else:
            self.life = self._is_away(self.life, seen)

    def _tell(self, change: Change) -> Change:
        """Puts a change in its place; no two have the same time."""
        told = replace(change, ts=self._look.ts + len(self._changes))
        self._changes.append(told)
        return told

    # ----------------------------------------------------------------------------- it is there

    def _open(self, seen: Sighting, before: Life | None = None) -> Life:
        """Returns a finding that has just opened, or opened again after `before`."""
        now, opened_ts, num = self._look.ts, seen.opened_ts, 1
        event: Event = "opened"
        openings: tuple[int, ...] = (now,)
        if before is not None:
            event, num = "reopened", before.num_openings + 1
            opened_ts = max(opened_ts, before.told.cleared_ts or 0)
            openings = (*(ts for ts in before.openings if now - ts < FLAP_WINDOW_NS), now)
        is_flapping = len(openings) >= FLAP_OPENINGS
        told = self._tell(
            Change(
                ts=now,
                event="flapping" if is_flapping else event,
                status="flapping" if is_flapping else "open",
                sighting=seen,
                opened_ts=opened_ts,
                cleared_ts=None,
                num_openings=num,
                reason=_flapped(openings) if is_flapping else "",
            )
        )
        return Life(
            told=told,
            worst=seen.severity,
            openings=openings,
            num_openings=num,
            turned_ts=now,
            is_active=True,
            last_open_ts=opened_ts,
        )

    def _is_there(self, life: Life, seen: Sighting) -> Life:
        if life.told.status in OVER:
            life = self._open(seen, life)
        elif life.told.status == "flapping":
            life = self._flaps(life, seen)
        elif reason := _notable(life, seen, self._look):
            life = self._update(life, seen, "updated", reason)
        return replace(life, is_active=True, quiet_since=None, last_open_ts=self._look.end_ts)

    def _update(self, life: Life, seen: Sighting, event: Event, reason: str) -> Life:
        told = self._tell(
            replace(
                life.told,
                event=event,
                status="open",
                sighting=seen,
                num_openings=life.num_openings,
                reason=reason,
            )
        )
        return replace(life, told=told, worst=max(life.worst, seen.severity))

    def _flaps(self, life: Life, seen: Sighting) -> Life:
        """Follows one that is told as flapping: quietly, until it stays."""
        now = self._look.ts
        if not life.is_active:
            openings = (*life.openings, now)[-_MOST_OPENINGS:]
            return replace(
                life, openings=openings, num_openings=life.num_openings + 1, turned_ts=now
            )
        calm_ns = now - life.turned_ts
        if calm_ns < CALM_NS:
            return life
        return self._update(life, seen, "settled", f"open without a break for {duration(calm_ns)}")

    # ------------------------------------------------------------------------------ it is away

    def _is_away(self, life: Life, seen: Sighting | None) -> Life:
        """Follows one that was not seen, or was seen as over (`seen`)."""
        if life.told.status in OVER:
            if seen is None or not _is_another(life.told, seen):
                return life
            life = self._open(seen, life)  # it came and went between two looks
        if seen is not None and seen.cleared_ts is not None:
            life = replace(life, last_open_ts=seen.cleared_ts)
        if life.told.status == "flapping":
            return self._stays_away(life, seen)
        if self._has_held(life, seen):
            return self._clear(life, seen)
        return replace(life, is_active=False, quiet_since=life.quiet_since or self._look.ts)

    def _stays_away(self, life: Life, seen: Sighting | None) -> Life:
        now = self._look.ts
        if life.is_active:
            return replace(life, is_active=False, turned_ts=now)
        return self._clear(life, seen) if now - life.turned_ts >= CALM_NS else life

    def _has_held(self, life: Life, seen: Sighting | None) -> bool:
        """Returns whether it has been away for long enough, by the log's clock or by ours."""
        over_ts = None if seen is None else seen.cleared_ts
        if over_ts is not None and self._look.end_ts - over_ts >= HOLD_NS:
            return True
        return life.quiet_since is not None and self._look.ts - life.quiet_since >= HOLD_NS

    def _clear(self, life: Life, seen: Sighting | None) -> Life:
        told = self._tell(
            replace(
                life.told,
                event="cleared",
                status="cleared",
                sighting=life.told.sighting if seen is None else seen,
                cleared_ts=max(life.last_open_ts, life.told.opened_ts),
                num_openings=life.num_openings,
                reason=self._why_cleared(life),
            )
        )
        return replace(life, told=told, is_active=False, quiet_since=None, turned_ts=self._look.ts)

    # ------------------------------------------------------------------------ its engine has ended

    def _is_over(self, life: Life, seen: Sighting | None) -> Life:
        """Follows one whose engine has ended: what the log says of its end is the last word."""
        status = life.told.status
        if status == "cleared":
            if seen is None or seen.is_open or not _is_another(life.told, seen):
                return life
            life = self._open(seen, life)  # it came and went since the last look
        has_measured = seen is not None or self._look.has_measured(life.told.sighting)
        if has_measured and (seen is None or not seen.is_open):
            if status == "ended" and seen is None:
                return life
            if seen is not None and seen.cleared_ts is not None:
                life = replace(life, last_open_ts=seen.cleared_ts)
            return self._clear(life, seen)
        return life if status == "ended" else self._end(life, seen)

    def _end(self, life: Life, seen: Sighting | None) -> Life:
        sighting = life.told.sighting if seen is None else seen
        told = self._tell(
            replace(
                life.told,
                event="ended",
                status="ended",
                sighting=sighting,
                num_openings=life.num_openings,
                reason=f"open when the record ended: {self._look.ended[sighting.engine]}",
            )
        )
        return replace(life, told=told, is_active=False, quiet_since=None, turned_ts=self._look.ts)

    def _why_cleared(self, life: Life) -> str:
        """Returns what else there is to say of an end; often nothing."""
        sighting = life.told.sighting
        by = self._look.explained.get((sighting.engine, sighting.rule))
        if by is not None:
            return f"explained by {by}"
        return _flapped(life.openings) if life.told.status == "flapping" else ""


def _is_another(cleared: Change, seen: Sighting) -> bool:
    """Returns whether what was seen as over is more than what was told as cleared."""
    if seen.cleared_ts is None or cleared.cleared_ts is None:
        return True
    is_later = seen.cleared_ts - cleared.cleared_ts > HOLD_NS
    return is_later or seen.opened_ts > cleared.cleared_ts


_MOST_OPENINGS = 1000
"""How many openings of a flapping finding are remembered."""


def _flapped(openings: tuple[int, ...]) -> str:
    return f"opened {len(openings):,} times in {duration(openings[-1] - openings[0])}"


def _notable(life: Life, seen: Sighting, look: Look) -> str:
    """Returns what has changed so much that it is told; empty where nothing has."""
    told = life.told.sighting
    if seen.severity > life.worst:
        return f"severity {told.severity.name} -> {seen.severity.name}"
    age = look.ts - life.told.ts
    if age < UPDATE_NS:
        return ""
    changes = []
    if seen.severity != told.severity:
        changes.append(f"severity {told.severity.name} -> {seen.severity.name}")
    if told.cause is not None and seen.cause != told.cause:
        changes.append(f"cause {told.cause} -> {seen.cause}")
    if _has_grown(told.count, seen.count):
        changes.append(f"count {count(told.count)} -> {count(seen.count)}")
    if not changes and age >= STILL_OPEN_NS:
        changes.append(f"still open after {duration(look.end_ts - life.told.opened_ts)}")
    return ", ".join(changes)


def _has_grown(told: Number | None, seen: Number | None) -> bool:
    if told is None or seen is None:
        return False
    return seen >= NOTABLE_FACTOR * told and seen > 0
