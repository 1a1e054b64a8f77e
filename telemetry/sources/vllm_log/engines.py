"""The engines of one log: one a data-parallel rank, each with what its start told.

A start is told by many lines of several processes. Until an engine's first sample its rows are held
back, so that it is described once, whole, before them; a start later in the file describes it anew.
Lines of the server that name no rank tell of all of them; an event without a rank is put to the
first one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from telemetry.records import EngineRow
from telemetry.sources.identity import engine_number
from telemetry.sources.importing import Import
from telemetry.sources.rows import Row
from telemetry.sources.vllm_log.startup import StartLine

MOST_HELD = 5_000
"""Rows that are held back for one engine at most."""
ALL = "all"
"""Rank of the line that is about all engines of a server together."""
_COLUMNS = frozenset(f.name for f in fields(EngineRow))


@dataclass(slots=True)
class _Told:
    """What start lines have told so far."""

    started_ts: int | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def take(self, line: StartLine, ts: int | None) -> None:
        if line.begins and self.started_ts is None:
            self.started_ts = ts
        self.columns.update(line.columns)
        self.settings.update(line.settings)


@dataclass(slots=True)
class _Engine:
    number: int
    told: _Told = field(default_factory=_Told)
    has_begun: bool = False
    is_described: bool = False
    held: list[tuple[str, Row]] = field(default_factory=list)


class LogEngines:
    """Describes the engines of a log to an import, and passes their rows on."""

    def __init__(self, job: Import, name: str) -> None:
        """Starts a file.

        Args:
            job: the import that takes the rows.
            name: name of the log; with a rank it is the engine's identity.
        """
        self._job = job
        self._name = name
        self._shared = _Told()
        self._engines: dict[str, _Engine] = {}
        self._without_rank: list[tuple[str, Row]] = []
        self.host: str | None = None
        """The host, where the log's environment names it."""
        self.num_without_rank = 0
        """Events that named no rank while there were several."""
        self.saw_start = False
        """Whether an engine's configuration was in the log."""

    @property
    def ranks(self) -> list[str]:
        """The ranks of which there is something, in order."""
        return sorted(self._engines, key=lambda rank: (rank == ALL, len(rank), rank))

    def number(self, rank: str) -> int:
        """Returns the number of the engine of a rank."""
        return self._engine(rank).number

    def describe(self, rank: str | None, line: StartLine, ts: int | None, pid: int | None) -> None:
        """Takes what a start line tells of one engine, or of all where `rank` is None."""
        if line.is_of_engine:
            self.saw_start = True
            engine = self._engine(rank or "0")
            if engine.has_begun:
                self._restart(engine)
            engine.has_begun = True
            engine.told.take(line, ts)
            self._shared.columns.update(line.columns)  # the other ranks print no such line
            self._shared.settings.update(line.settings)
            if pid is not None:
                engine.told.columns["pid"] = pid
        elif rank is not None:
            self._engine(rank).told.take(line, ts)
        else:
            # Once an engine works; before that several servers may tell of the same start.
            if line.begins and any(engine.is_described for engine in self._engines.values()):
                self._shared = _Told()
                for engine in self._engines.values():
                    self._restart(engine)
            self._shared.take(line, ts)

    def add(self, rank: str | None, table: str, row: Row) -> None:
        """Takes a row of one engine, held back until the engine can be described."""
        if rank is None:
            self._without_rank.append((table, row))
            if len(self._engines) > 1:
                self.num_without_rank += 1
            if len(self._without_rank) > MOST_HELD or any(
                engine.is_described for engine in self._engines.values()
            ):
                self._place_rankless()
            return
        engine = self._engine(rank)
        if engine.is_described:
            self._job.add(table, [{**row, "engine": engine.number}])
            return
        engine.held.append((table, row))
        if len(engine.held) > MOST_HELD:
            self._settle(engine, rank)

    def add_samples(self, rank: str, rows: Iterable[Row]) -> None:
        """Takes the samples of one line: the engine's start is over."""
        engine = self._engine(rank)
        if not engine.is_described:
            self._settle(engine, rank)
        self._place_rankless()
        self._job.add("samples", ({**row, "engine": engine.number} for row in rows))

    def finish(self) -> None:
        """Describes and passes on what is still held back."""
        self._place_rankless()
        for rank, engine in self._engines.items():
            if not engine.is_described:
                self._settle(engine, rank)

    def _engine(self, rank: str) -> _Engine:
        if rank not in self._engines:
            self._engines[rank] = _Engine(engine_number("vllm-log", self._name, rank))
        return self._engines[rank]

    def _place_rankless(self) -> None:
        rows, self._without_rank = self._without_rank, []
        for table, row in rows:
            self.add(self.ranks[0] if self._engines else "0", table, row)

    def _restart(self, engine: _Engine) -> None:
        rank = next(rank for rank, other in self._engines.items() if other is engine)
        if not engine.is_described:
            self._settle(engine, rank)
        engine.told, engine.has_begun, engine.is_described = _Told(), False, False

    def _settle(self, engine: _Engine, rank: str) -> None:
        """Describes an engine, then passes its rows on."""
        held, engine.held = engine.held, []
        self._job.describe(engine.number, self._row(engine, rank, held))
        engine.is_described = True
        for table, row in held:
            self._job.add(table, [{**row, "engine": engine.number}])

    def _row(self, engine: _Engine, rank: str, held: list[tuple[str, Row]]) -> EngineRow:
        told = {**self._shared.columns, **engine.told.columns}
        settings = {**self._shared.settings, **engine.told.settings}
        starts = [engine.told.started_ts, self._shared.started_ts, *(row["ts"] for _, row in held)]
        columns = {name: value for name, value in told.items() if name in _COLUMNS}
        return EngineRow(
            **{**columns, **_blocks(told)},
            started_ts=next((ts for ts in starts if ts is not None), 0),
            host=self.host,
            dp_rank=int(rank) if rank != ALL else None,
            source="vllm",
            settings=json.dumps(settings, sort_keys=True) if settings else None,
        )


def _blocks(told: dict[str, Any]) -> dict[str, Any]:
    """Returns the columns about KV blocks: V1 keeps one as null block, V0 did not."""
    num_blocks, is_v1 = told.get("num_gpu_blocks"), told.get("is_v1")
    if not isinstance(num_blocks, int) or is_v1 is None:
        return {}
    return {"num_usable_blocks": num_blocks - is_v1, "has_null_block": is_v1}
