"""Engine starts as a page or a report knows them, and the little that charts ask of either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from dashboard.colours import Theme
from dashboard.queries import header as queries
from diagnose.reading import QueryLog, Scope
from diagnose.words import engine_hex


@dataclass(frozen=True)
class EngineStart:
    """An engine start as the picker knows it. Times are ns since the epoch."""

    engine: int
    model: str | None
    dp_rank: int | None
    first_ts: int
    newest_ts: int
    end_kind: str | None
    end_ts: int | None
    end_step: int | None

    @property
    def is_interrupted(self) -> bool:
        """Whether it ended without saying goodbye."""
        return self.end_kind in ("engine_died", "engine_failed")


def read_engines(log: QueryLog) -> tuple[EngineStart, ...]:
    """Returns every engine start of a log, the newest first."""
    columns = EngineStart.__dataclass_fields__
    rows = log.query(queries.ENGINES).to_pylist()
    return tuple(EngineStart(**{name: row[name] for name in columns}) for row in rows)


def engine_label(start: EngineStart) -> str:
    """Returns `tiny-llama · 0`, or the engine's number where it has no model; untrusted text."""
    rank = "" if start.dp_rank is None else f" · {start.dp_rank}"
    return f"{start.model or engine_hex(start.engine)}{rank}"


class View(Protocol):
    """What charts are drawn for: a page in a browser, or a picture in a report."""

    @property
    def engine(self) -> EngineStart: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def theme(self) -> Theme: ...
    @property
    def width(self) -> int:
        """Pixels, with the space for labels."""
        ...

    def ask(self, sql: str) -> pd.DataFrame:
        """Returns the rows of one statement."""
        ...

    def row(self, sql: str) -> dict[str, Any]:
        """Returns the one row of an aggregate; what is NULL is None."""
        ...


def one_row(frame: pd.DataFrame) -> dict[str, Any]:
    """Returns the one row of a frame; what is NULL is None."""
    record = frame.iloc[0].to_dict()
    return {name: None if pd.isna(value) else value for name, value in record.items()}
