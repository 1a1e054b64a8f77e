"""What a rule of one's own consists of, once its file was read and found to be in order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from diagnose.finding import Applies, CauseKind, Level, Number, Severity

Judges = Literal["steps", "scrapes"]
Comparison = Literal["above", "at_least", "below", "at_most", "equals"]
Expected = Literal["finding", "healthy", "not_measured"]

COMPARISONS = cast("tuple[Comparison, ...]", get_args(Comparison))
PLACEHOLDERS = ("where", "engine", "start", "end")
"""What a statement may have in braces besides the names of thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A named number, and where it comes from."""

    name: str
    value: Number
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A column of the answer against a threshold. `name` is what its number is called."""

    column: str
    comparison: Comparison
    threshold: Threshold
    name: str
    unit: str

    def holds(self, value: Number) -> bool:
        """Whether a value of the column meets it."""
        limit = self.threshold.value
        match self.comparison:
            case "above":
                return value > limit
            case "at_least":
                return value >= limit
            case "below":
                return value < limit
            case "at_most":
                return value <= limit
            case "equals":
                return value == limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """How much the answer must be counted over; less is too little data."""

    column: str
    threshold: Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTemplate:
    """Something to do; texts may hold columns. `old` is looked up in the engine's settings."""

    what: str
    flag: str | None
    to: str | None
    applies: Applies
    trade_off: str
    verify: str
    revert: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A test that stands in the file: rows that the statement would give, or a log to run it on.

    `tables` are lists of rows, or statements that make them, by the table that they go to.
    """

    name: str
    line: int
    rows: tuple[dict[str, Any], ...] | None
    tables: tuple[tuple[str, str | tuple[dict[str, Any], ...]], ...]
    expect: Expected
    says: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRule:
    """A whole file."""

    path: Path
    id: str
    version: int
    title: str
    severity: Severity
    sections: tuple[tuple[str, str], ...]
    thresholds: tuple[Threshold, ...]
    judges: Judges
    needs: tuple[tuple[str, str], ...]
    """Tables and columns without which nothing can be said."""
    sql: str
    sql_line: int
    enough: Enough | None
    conditions: tuple[Condition, ...]
    sentence: str
    symptom: str
    healthy_name: str
    healthy_number: str
    cause_kind: CauseKind
    cause: str
    confidence: Level
    confidence_why: str
    cost: tuple[str, ...]
    users: tuple[str, ...]
    actions: tuple[ActionTemplate, ...]
    silenced_by: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def place(self) -> str:
        """Where its statement stands."""
        return f"{self.path}:{self.sql_line}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that its decision reads."""
        own = [condition.column for condition in self.conditions]
        return tuple(dict.fromkeys([*([self.enough.column] if self.enough else []), *own]))

    @property
    def templates(self) -> tuple[str, ...]:
        """Every text in which columns may be named."""
        own = (self.sentence, self.symptom, self.healthy_number, self.cause, self.confidence_why)
        asked = [text for each in self.actions for text in (each.what, each.to or "")]
        return (*own, *self.cost, *self.users, *asked)

    @property
    def page(self) -> str:
        """Its page, as the docstring of a rule of ours has it."""
        parts = [f"{self.id}: {self.title.removesuffix('.')}."]
        parts += [f"{heading}\n{'-' * len(heading)}\n{text}" for heading, text in self.sections]
        return "\n\n".join(parts) + "\n"
