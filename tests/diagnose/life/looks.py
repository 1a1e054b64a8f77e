"""Looks at findings, built by hand: what an evaluation of the rules saw at a moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from diagnose.finding import Severity, finding_id
from diagnose.life.look import Look, Sighting
from diagnose.life.machine import Change, Life, observe
from diagnose.reading import NS

ENGINE = 0xA1
RULE = "kv-preemption-pressure"
ID = finding_id("kvp", ENGINE)
START = 1_764_417_720 * NS
PERIOD_NS = 10 * NS

Seen = Literal["open", "over", "absent", "unmeasured"]
"""What a look says of the finding; `over`: it was so in the window, and is not any more."""


def sighting(
    opened_ts: int = START,
    cleared_ts: int | None = None,
    *,
    severity: Severity = Severity.high,
    cause: str = "burst_of_arrivals",
    num: int = 10,
) -> Sighting:
    document = {
        "sentence": f"{num} requests were evicted.",
        "cause": {"kind": cause},
        "impact": {"num_preemptions": num},
    }
    return Sighting(
        id=ID,
        engine=ENGINE,
        rule=RULE,
        rule_version=1,
        severity=severity,
        cause=cause,
        count=num,
        opened_ts=opened_ts,
        cleared_ts=cleared_ts,
        body=json.dumps(document),
    )


@dataclass(slots=True)
class Course:
    """A finding followed look by look, `PERIOD_NS` apart."""

    now: int = START
    lives: dict[str, Life] = field(default_factory=dict)
    told: list[Change] = field(default_factory=list)
    opened_ts: int = START
    was_open: bool = False

    def look(self, seen: Seen, *, pause_ns: int = PERIOD_NS, **what: Any) -> list[Change]:
        """Looks once, a pause after the last look; returns what is told of it."""
        self.now += pause_ns
        if seen == "open" and not self.was_open:
            self.opened_ts = self.now - NS
        changes = self.take(self._look(seen, what))
        self.was_open = seen == "open" or (seen == "unmeasured" and self.was_open)
        return changes

    def take(self, look: Look) -> list[Change]:
        self.lives, changes = observe(self.lives, look)
        self.told += changes
        return changes

    def looks(self, *seen: Seen, pause_ns: int = PERIOD_NS) -> list[str]:
        """Looks several times; returns the events told."""
        return [change.event for each in seen for change in self.look(each, pause_ns=pause_ns)]

    def _look(self, seen: Seen, what: dict[str, Any]) -> Look:
        look = Look(ts=self.now, end_ts=self.now)
        if seen == "unmeasured":
            return replace(look, unmeasured=frozenset({(ENGINE, RULE)}))
        if seen == "absent":
            return look
        cleared_ts = None if seen == "open" else self.now - 5 * NS
        opened_ts = min(self.opened_ts, self.now if cleared_ts is None else cleared_ts)
        return replace(look, sightings={ID: sighting(opened_ts, cleared_ts, **what)})

    @property
    def status(self) -> str:
        return self.lives[ID].told.status

    @property
    def events(self) -> list[str]:
        return events_of(self.told)


def events_of(changes: Sequence[Change]) -> list[str]:
    return [change.event for change in changes]
