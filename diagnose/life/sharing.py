"""What made a stored finding's preemptions, worked out by replays beside the evaluations.

Shares take replays, and an evaluation every ten seconds has no time for them. So a change is told
first, and what replays find is told after it, as a change of its own (`explained`): once for each
opening, worsening and end. The work has a limit, and is not begun where the time until the next
evaluation might not do; then it waits for another.

What replays told stays with an opening: a later look, which replays nothing, has its numbers and
keeps its cause beside the shares (`Explanations.carried`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from diagnose.diagnosis import evaluate, read_context
from diagnose.finding import Finding
from diagnose.json_output import finding_document
from diagnose.life.machine import Change, Life
from diagnose.life.shares import explained_part, shares_in, shares_words
from diagnose.reading import QueryLog
from diagnose.rule import Rule
from diagnose.window import Window
from diagnose.words import stretch

SHARED_RULES = ("kv-preemption-pressure", "kv-preemption-thrash")
"""Rules whose findings are shared out among the changes that made them."""
MOST_TIME = 0.5
"""Part of the time until the next evaluation that replays may take, by how long the last took."""


@dataclass(slots=True)
class Explanations:
    """What replays told of findings, and of which they are still to be made.

    Invariants:
        A finding waits at most once: its newest change counts.
    """

    _told: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    """By finding: the opening (its number), and the part of the document that replays told."""
    _waiting: dict[str, None] = field(default_factory=dict)
    _took_seconds: float = 0.0

    def remember(self, lives: Iterable[Life]) -> None:
        """Takes what is stored: an analyst that starts again goes on with it."""
        for life in lives:
            self._learn(life.told.sighting.id, life.told.num_openings, life.told.sighting.body)

    def ask(self, changes: Iterable[Change]) -> None:
        """Has the findings of these changes explained, as soon as there is time."""
        for change in changes:
            if change.sighting.rule in SHARED_RULES:
                self._waiting.setdefault(change.sighting.id)

    def carried(self, change: Change) -> Change:
        """Returns a change with what replays told of the same opening."""
        opening, part = self._told.get(change.sighting.id, (0, {}))
        if opening != change.num_openings:
            return change
        document = json.loads(change.sighting.body) | part
        body = json.dumps(document, allow_nan=False)
        return replace(change, sighting=replace(change.sighting, body=body))

    def next(self, seconds: float) -> str | None:
        """Returns the finding whose turn it is, where so much time is enough; else `None`."""
        if self._took_seconds > seconds * MOST_TIME:
            self._took_seconds /= 2  # the next one may be smaller
            return None
        waiting = next(iter(self._waiting), None)
        if waiting is not None:
            del self._waiting[waiting]
        return waiting

    def explain(
        self, log: QueryLog, window: Window, told: Change, rules: Sequence[Rule]
    ) -> Change | None:
        """Returns the change that tells what replays found; `None` where they found nothing.

        Args:
            log: the log.
            window: what the rules look at.
            told: the newest change of the finding.
            rules: all of them.
        """
        began = time.monotonic()
        finding = _work_out(log, window, told, rules)
        self._took_seconds = time.monotonic() - began
        if finding is None:
            return None
        whole = finding_document(finding, stretch(window.start_ts, window.end_ts))
        part = explained_part(whole) | {"shared_ts": window.end_ts}
        body = json.dumps(json.loads(told.sighting.body) | part, allow_nan=False)
        self._learn(told.sighting.id, told.num_openings, body)
        return replace(
            told,
            ts=time.time_ns(),
            event="explained",
            sighting=replace(told.sighting, body=body),
            reason=shares_words(shares_in(whole)),
        )

    def _learn(self, finding: str, opening: int, body: str) -> None:
        part = explained_part(json.loads(body))
        if part:
            self._told[finding] = (opening, part)


def _work_out(log: QueryLog, window: Window, told: Change, rules: Sequence[Rule]) -> Finding | None:
    """Returns the finding as it is with replays; `None` without shares, or of another opening."""
    rule = next((rule for rule in rules if rule.id == told.sighting.rule), None)
    if rule is None:
        return None
    context = read_context(log, window, told.sighting.engine, "brief")
    found = evaluate(context, [rule]).get(rule.id)
    if not isinstance(found, Finding) or not found.shares or not _is_same(told, found):
        return None
    return found


def _is_same(told: Change, found: Finding) -> bool:
    """Whether what was found lies in the opening that was told."""
    begins_before_end = told.cleared_ts is None or found.span.opened_ts <= told.cleared_ts
    ended_ts = found.span.cleared_ts
    return begins_before_end and (ended_ts is None or ended_ts >= told.opened_ts)
