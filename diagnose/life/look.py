"""What one evaluation of the rules saw: each finding, and what could not be looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnose.diagnosis import Diagnosis
from diagnose.finding import NOT_ENOUGH_DATA, Finding, Number, Severity
from diagnose.json_output import finding_document
from diagnose.life.ends import End
from diagnose.words import stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A finding as one evaluation saw it. `body` is the whole of it, as JSON.

    `count` is what it is measured by (preemptions, requests); `None` where nothing is counted.
    `cause` is `None` where replays told it and no look has seen it since: a look without replays is
    not to be compared with them.
    """

    id: str
    engine: int
    rule: str
    rule_version: int
    severity: Severity
    cause: str | None
    count: Number | None
    opened_ts: int
    cleared_ts: int | None
    body: str

    @property
    def is_open(self) -> bool:
        """Whether it was so at the end of what was looked at."""
        return self.cleared_ts is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One evaluation. `ts` is the wall clock's, `end_ts` the newest moment of the log."""

    ts: int
    end_ts: int
    sightings: Mapping[str, Sighting] = field(default_factory=dict)
    unjudged: frozenset[int] = frozenset()
    """Engines of which too little was recorded to say anything."""
    unmeasured: frozenset[tuple[int, str]] = frozenset()
    """Engine and rule of what could not be measured: that is not the same as well."""
    explained: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """By engine and rule: the rule that explains its finding away."""
    ended: Mapping[int, End] = field(default_factory=dict)
    """Engines that have ended: nothing of them comes back."""
    judged: frozenset[int] | None = None
    """Engines that were looked at; `None`: all of them."""

    def has_measured(self, sighting: Sighting) -> bool:
        """Returns whether a finding that was not seen is really not there."""
        engine, place = sighting.engine, (sighting.engine, sighting.rule)
        if engine in self.ended and self.judged is not None and engine not in self.judged:
            return False  # it ended before the window: nobody saw how it went on
        return engine not in self.unjudged and place not in self.unmeasured


def look_at(diagnosis: Diagnosis, ts: int, ended: Mapping[int, End] | None = None) -> Look:
    """Returns what a diagnosis saw, looked at now (`ts`, wall clock).

    `ended` says of engines how they ended, also of those that ended before the window.
    """
    window, engines = diagnosis.window, diagnosis.engines
    when = stretch(window.start_ts, window.end_ts)
    return Look(
        ts=ts,
        end_ts=window.end_ts,
        sightings={found.id: sighting_of(found, when) for found in diagnosis.findings},
        unjudged=frozenset(
            engine.scope.engine for engine in engines if engine.verdict.rule == NOT_ENOUGH_DATA
        ),
        unmeasured=frozenset(
            (engine.scope.engine, said.rule) for engine in engines for said in engine.not_measured
        ),
        explained={
            (engine.scope.engine, said.rule): said.by
            for engine in engines
            for said in engine.suppressed
            if said.rule is not None
        },
        ended=ended or {},
        judged=frozenset(engine.scope.engine for engine in engines),
    )


def sighting_of(finding: Finding, when: str) -> Sighting:
    """Returns a finding of a window (`when`, in words) as it is followed and stored."""
    document = finding_document(finding, when)
    return Sighting(
        id=finding.id,
        engine=finding.engine,
        rule=finding.rule,
        rule_version=finding.rule_version,
        severity=finding.severity,
        cause=finding.cause.kind,
        count=count_in(document),
        opened_ts=finding.span.opened_ts,
        cleared_ts=finding.span.cleared_ts,
        body=json.dumps(document, allow_nan=False),
    )


def count_in(document: Mapping[str, Any]) -> Number | None:
    """Returns the first number that says what a finding cost, else how many requests it hit."""
    impact = document.get("impact") or {}
    counted = (value for value in impact.values() if isinstance(value, int | float))
    number: Number | None = next(counted, document.get("num_affected_requests"))
    return number
