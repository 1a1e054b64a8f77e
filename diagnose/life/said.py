"""What people have said of the findings of a diagnosis: which are known, which are silenced.

A silence need not name a finding that is stored: it is of a rule, an engine, or both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.finding import Finding
from diagnose.life.listing import acknowledged_words, silenced_words
from diagnose.life.state import FindingState, Silence, read_silences, read_states
from diagnose.reading import QueryLog
from diagnose.words import iso


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What holds of one finding at a moment. `state` is `None` where nothing of it is stored."""

    state: FindingState | None = None
    silence: Silence | None = None

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
    def document(self) -> dict[str, Any]:
        """The same for machines."""
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


def read_said(log: QueryLog, findings: Iterable[Finding], now: int) -> dict[str, Said]:
    """Returns what people said of findings, as it holds now (wall clock)."""
    found = list(findings)
    if not found:
        return {}
    states = {state.finding: state for state in read_states(log)}
    silences = read_silences(log, now)
    return {
        finding.id: Said(state=states.get(finding.id), silence=_longest(silences, finding))
        for finding in found
    }


def _longest(silences: Iterable[Silence], finding: Finding) -> Silence | None:
    """Returns the silence that names a finding for longest."""
    own = [
        silence
        for silence in silences
        if silence.rule in (None, finding.rule) and silence.engine in (None, finding.engine)
    ]
    return max(own, key=lambda silence: silence.until_ts, default=None)
