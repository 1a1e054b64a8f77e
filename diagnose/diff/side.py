"""One side of a comparison: an engine in a window, with its diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.diagnosis import EngineDiagnosis, diagnose
from diagnose.finding import Finding
from diagnose.reading import QueryLog, Scope
from diagnose.rule import Rule
from diagnose.rules import RULES
from diagnose.window import Window
from diagnose.words import engine_hex

NUM_STRETCHES = 16
"""Equal stretches of a window that chance may shuffle; see `noise`. Starting value."""


@dataclass(frozen=True)
class Side:
    """An engine in a window. `num_others` engines of the window are left out."""

    name: str
    log: QueryLog
    diagnosis: EngineDiagnosis
    num_others: int = 0

    @property
    def scope(self) -> Scope:
        """The engine and the window."""
        return self.diagnosis.scope

    @property
    def stretch_ns(self) -> int:
        """Length of a stretch."""
        return max(-(-self.scope.duration_ns // NUM_STRETCHES), 1)

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return max(self.scope.duration_ns, 1) / 1e9

    def stretch_sql(self, column: str = "ts") -> str:
        """Returns SQL for the stretch that a moment lies in, from 0."""
        return f"(({column} - {self.scope.start_ts}) // {self.stretch_ns})"

    def finding(self, rule: str) -> Finding | None:
        """Returns the finding of a rule, if there is one."""
        return next((each for each in self.diagnosis.findings if each.rule == rule), None)


def read_side(
    name: str,
    log: QueryLog,
    window: Window,
    engine: int | None = None,
    *,
    rules: Sequence[Rule] = tuple(RULES.values()),
) -> Side:
    """Returns one side.

    Without `engine`, of the engine that ran most steps in the window, or was scraped most often.

    Raises:
        ValueError: no engine left a row in the window, or not that one.
    """
    found = diagnose(log, window, rules=rules).engines
    if not found:
        raise ValueError(f"no engine left a row in window {name}: choose another FROM..TO")
    if engine is None:
        return Side(name, log, max(found, key=_size), len(found) - 1)
    own = [each for each in found if each.scope.engine == engine]
    if not own:
        known = ", ".join(engine_hex(each.scope.engine) for each in found)
        raise ValueError(f"no engine {engine_hex(engine)} in window {name}: there are {known}")
    return Side(name, log, own[0], len(found) - 1)


def _size(engine: EngineDiagnosis) -> tuple[int, int]:
    return engine.steps.num_steps, 0 if engine.metrics is None else engine.metrics.num_scrapes
