"""What is stored of the findings of a diagnosis: their life, their shares, what people said.

One place for all who tell it: `stepscope diagnose`, the reports and the dashboard's pages. A
silence need not name a finding that is stored: it is of a rule, an engine, or both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagnose.diagnosis import Diagnosis
from diagnose.finding import Finding
from diagnose.life.listing import acknowledged_words, day_and_time, ended_words, silenced_words
from diagnose.life.state import FindingState, Silence, read_silences, read_states
from diagnose.reading import QueryLog
from diagnose.words import harmless, iso

MIN_COVERED = 0.5
"""Part of a finding's preemptions that stored shares have to divide. Choice: a minority tells
little of the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What holds of one finding at a moment. `state` is `None` where nothing of it is stored.

    `silence` is in force then; `None` where none is. `cleared_ts` is when the finding cleared, as
    the diagnosis sees it: who follows findings waits for a while before saying so, and the record
    may have ended meanwhile.
    """

    state: FindingState | None = None
    silence: Silence | None = None
    cleared_ts: int | None = None

    @property
    def is_silenced(self) -> bool:
        """Whether nobody is to be told of it now."""
        return self.silence is not None

    @property
    def lines(self) -> list[str]:
        """Who said what, a line each."""
        lines, state, silence = [], self.state, self.silence
        if state is not None and state.acknowledged_ts is not None:
            by, note = state.acknowledged_by, state.acknowledged_note
            lines.append(acknowledged_words(by, state.acknowledged_ts, note))
        if silence is not None:
            lines.append(silenced_words(silence.author, silence.until_ts, silence.note))
        return lines

    @property
    def words(self) -> str:
        """How it goes on and whether somebody knows of it, in a few words; empty for nothing."""
        words, state, silence = [], self.state, self.silence
        if state is not None and state.status == "flapping":
            words.append("comes and goes")
        if state is not None and state.status == "ended" and self.cleared_ts is None:
            words.append(ended_words(state))
        if state is not None and state.acknowledged_ts is not None:
            words.append(f"acknowledged by {harmless(state.acknowledged_by)}")
        if silence is not None:
            until = day_and_time(silence.until_ts)
            words.append(f"silenced by {harmless(silence.author)} until {until}")
        return " · ".join(words)

    @property
    def document(self) -> dict[str, Any]:
        """Who said what, for machines."""
        state, silence = self.state, self.silence
        acknowledged = silenced = None
        if state is not None and state.acknowledged_ts is not None:
            acknowledged = {
                "by": state.acknowledged_by,
                "at": iso(state.acknowledged_ts),
                "note": state.acknowledged_note,
            }
        if silence is not None:
            until = iso(silence.until_ts)
            silenced = {"by": silence.author, "until": until, "note": silence.note}
        return {"acknowledged": acknowledged, "silenced": silenced}


NOTHING_SAID = Said()
SaidOf = Mapping[str, Said]
"""By the finding's id; a finding that is not there is one of which nobody said anything."""


@dataclass(frozen=True, slots=True)
class Lives:
    """All that a log remembers of findings, and the silences in force, as read at one moment."""

    states: tuple[FindingState, ...]
    silences: tuple[Silence, ...]

    def of(self, found: Finding | FindingState) -> Said:
        """Returns what holds of a finding."""
        silence = _longest(self.silences, found)
        if isinstance(found, FindingState):
            return Said(state=found, silence=silence)
        state = next((state for state in self.states if state.finding == found.id), None)
        return Said(state=state, silence=silence, cleared_ts=found.span.cleared_ts)


def read_lives(log: QueryLog, now: int, *, is_closed: bool = False) -> Lives:
    """Returns what a log remembers of findings, as it holds now (wall clock).

    Args:
        log: the log.
        now: the moment.
        is_closed: nobody writes the log any more, so that nothing of it is open now.
    """
    return Lives(tuple(read_states(log, is_closed=is_closed)), tuple(read_silences(log, now)))


def read_said(
    log: QueryLog, findings: Iterable[Finding], now: int, *, is_closed: bool = False
) -> dict[str, Said]:
    """Returns what is stored and said of findings; the arguments are those of `read_lives`."""
    found = list(findings)
    if not found:
        return {}
    lives = read_lives(log, now, is_closed=is_closed)
    return {finding.id: lives.of(finding) for finding in found}


def with_life(
    log: QueryLog, diagnosis: Diagnosis, now: int, *, is_closed: bool = False
) -> tuple[Diagnosis, dict[str, Said]]:
    """Returns a diagnosis with the shares that are stored, and what is said of its findings.

    The other arguments are those of `read_lives`.
    """
    said = read_said(log, diagnosis.findings, now, is_closed=is_closed)
    engines = tuple(
        replace(engine, findings=tuple(_completed(engine.findings, said)))
        for engine in diagnosis.engines
    )
    return replace(diagnosis, engines=engines), said


def _completed(findings: Sequence[Finding], said: SaidOf) -> Iterable[Finding]:
    return (with_stored_shares(each, said.get(each.id, NOTHING_SAID).state) for each in findings)


def with_stored_shares(finding: Finding, state: FindingState | None) -> Finding:
    """Returns a finding with the shares that are stored of it, where it has none of its own.

    Not every look replays: the analyst beside the collector did. Shares of another opening are not
    its own, and shares of a beginning say nothing of what came after it.
    """
    if finding.shares or state is None or not state.shares:
        return finding
    if not (_overlap(finding, state) and _cover(finding, state)):
        return finding
    return replace(finding, shares=state.told_shares, shared_ts=state.shared_ts)


def _cover(finding: Finding, state: FindingState) -> bool:
    """Whether stored shares divide enough of the preemptions that are there now."""
    known = dict(finding.impact.numbers).get("num_preemptions")
    return known is None or sum(share.num for share in state.told_shares) >= MIN_COVERED * known


def _overlap(finding: Finding, state: FindingState) -> bool:
    begins = finding.span.cleared_ts is None or state.opened_ts <= finding.span.cleared_ts
    return begins and (state.cleared_ts is None or finding.span.opened_ts <= state.cleared_ts)


def _longest(silences: Iterable[Silence], found: Finding | FindingState) -> Silence | None:
    """Returns the silence that names a finding for longest."""
    own = [
        silence
        for silence in silences
        if silence.rule in (None, found.rule) and silence.engine in (None, found.engine)
    ]
    return max(own, key=lambda silence: silence.until_ts, default=None)
