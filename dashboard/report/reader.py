"""A log as charts ask it, without a browser: each statement is run once for both themes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dashboard.colours import Theme
from dashboard.starts import EngineStart, one_row
from diagnose.reading import QueryLog, Scope


@dataclass(frozen=True)
class Reader:
    """The view of a picture: an engine's window in one theme."""

    log: QueryLog
    engine: EngineStart
    scope: Scope
    theme: Theme
    width: int
    answers: dict[str, pd.DataFrame] = field(default_factory=dict)
    """Shared by the themes of a picture."""

    def ask(self, sql: str) -> pd.DataFrame:
        """Returns the rows of one statement."""
        if sql not in self.answers:
            self.answers[sql] = self.log.query(sql).to_pandas()
        return self.answers[sql].copy()

    def row(self, sql: str) -> dict[str, Any]:
        """Returns the one row of an aggregate; what is NULL is None."""
        return one_row(self.ask(sql))
