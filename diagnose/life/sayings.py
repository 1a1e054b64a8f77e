"""What a person says of findings: that one is known, or that some are not to be told for a while.

Each saying is a row of its own, with author and note, and takes nothing away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagnose.life.state import FindingState
from diagnose.reading import NS
from telemetry.rendering import engine_hex

LONGEST_SILENCE_NS = 30 * 24 * 3600 * NS
"""A silence that nobody remembers hides what is new."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a silence is for: a rule, an engine, or a rule of an engine; `None` is any."""

    rule: str | None
    engine: int | None

    def __post_init__(self) -> None:
        if self.rule is None and self.engine is None:
            raise ValueError("name a finding, or --rule, or --engine: nothing silences everything")

    def __str__(self) -> str:
        rule = "every rule" if self.rule is None else self.rule
        return rule if self.engine is None else f"{rule} of engine {engine_hex(self.engine)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """Who says something, when (wall clock) and why."""

    author: str
    note: str
    ts: int

    def acknowledge(self, state: FindingState) -> dict[str, Any]:
        """Returns the row that acknowledges a finding, until it opens again.

        Raises:
            ValueError: It has cleared.
        """
        if state.status == "cleared":
            raise ValueError(f"{state.finding} has cleared: there is nothing to acknowledge")
        place = {"engine": state.engine, "finding": state.finding, "rule": state.rule}
        return self._row("acknowledged") | place

    def silence(self, target: Target, for_ns: int) -> dict[str, Any]:
        """Returns the row that silences a target for so long.

        Raises:
            ValueError: It is longer than `LONGEST_SILENCE_NS`.
        """
        if for_ns > LONGEST_SILENCE_NS:
            days = LONGEST_SILENCE_NS // (24 * 3600 * NS)
            raise ValueError(f"--for is at most {days} days: say it again then")
        return self._row("silenced") | _place(target) | {"until_ts": self.ts + for_ns}

    def unsilence(self, target: Target) -> dict[str, Any]:
        """Returns the row that ends a silence."""
        return self._row("unsilenced") | _place(target)

    def _row(self, event: str) -> dict[str, Any]:
        return {"event": event, "ts": self.ts, "author": self.author, "note": self.note or None}


def _place(target: Target) -> dict[str, Any]:
    return {"rule": target.rule, "engine": target.engine}
