"""The collector's way from a ring into DuckDB, against DuckDB's own insert of the same arrays.

Both run in this process and take turns on the same rows. The collector also reads the ring, writes
the steps and events, makes the dense rows lean and moves its read positions; the raw insert is
given the arrays of the dense rows and does nothing else. So 1.0 cannot be had; the goal is 0.8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.storing.engines import SimulatedEngine
from telemetry.collector import Collector
from telemetry.ring import Position, RingReader
from telemetry.store.files import STORAGE_VERSION
from telemetry.tables import DENSE_TABLES

GOAL_RATIO = 0.8
MEMORY_LIMIT = "4GB"
_NUM_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Cost:
    """What rows took: wall time, and CPU time of all threads of the process."""

    wall_ns: int
    cpu_ns: int

    @classmethod
    def of(cls, work: Callable[[], object]) -> Cost:
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        work()
        return cls(time.perf_counter_ns() - wall, time.process_time_ns() - cpu)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rounds of equal numbers of rows, drained and inserted raw."""

    rows_per_round: int
    drained: list[Cost]
    raw: list[Cost]

    def rows_per_second(self, costs: list[Cost]) -> float:
        return self.rows_per_round / (float(np.median([c.wall_ns for c in costs])) / 1e9)

    def cpu_us_per_row(self, costs: list[Cost]) -> float:
        return float(np.median([c.cpu_ns for c in costs])) / self.rows_per_round / 1000

    def ratio(self) -> tuple[float, float, float]:
        """Returns drained over raw throughput: median of the rounds, and its 95 % interval."""
        raw, drained = (np.array([c.wall_ns for c in costs]) for costs in (self.raw, self.drained))
        ratios = raw / drained
        draws = np.random.default_rng(0).choice(ratios, (_NUM_DRAWS, len(ratios)))
        low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
        return float(np.median(ratios)), float(low), float(high)


class RawTable:
    """A plain table of the dense rows' columns, and the plainest way into it."""

    def __init__(self, path: Path) -> None:
        self._connection: Any = duckdb.connect(config={"memory_limit": MEMORY_LIMIT})
        self._connection.execute(f"ATTACH '{path}' AS raw (STORAGE_VERSION '{STORAGE_VERSION}')")
        self._is_made = False

    def insert(self, arrays: dict[str, Any]) -> None:
        connection = self._connection
        connection.register("arrays", arrays)
        if not self._is_made:
            connection.execute("CREATE TABLE raw.rows AS FROM arrays LIMIT 0")
            self._is_made = True
        connection.execute("BEGIN")
        connection.execute("INSERT INTO raw.rows FROM arrays")
        connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def compare(
    directory: Path, *, steps_per_round: int, num_rounds: int, num_requests: int
) -> Comparison:
    """Returns what draining and raw inserts took, after one round that warms both up."""
    rings, log = directory / "rings", directory / "log"
    rings.mkdir(parents=True)
    engine = SimulatedEngine(
        rings, log, num_requests=num_requests, ring_bytes=_ring_bytes(steps_per_round, num_requests)
    )
    reader, position = RingReader(engine.ring.path), Position()
    raw = RawTable(directory / "raw.duckdb")
    drained_costs, raw_costs = [], []
    with Collector(log, directories=[rings], detail="full") as collector:
        collector.open()
        for number in range(num_rounds + 1):
            for _ in range(steps_per_round):
                engine.step()
            arrays, position = _arrays(reader, position)
            work = [lambda: raw.insert(arrays), collector.drain]  # noqa: B023 - called at once
            costs = [Cost.of(each) for each in (work if number % 2 else reversed(work))]
            raw_cost, drain_cost = costs if number % 2 else reversed(costs)
            if number:
                raw_costs.append(raw_cost)
                drained_costs.append(drain_cost)
        reader.close()
        engine.close()
    raw.close()
    return Comparison(steps_per_round * num_requests, drained_costs, raw_costs)


def _ring_bytes(num_steps: int, num_requests: int) -> int:
    return max(8 << 20, num_steps * num_requests * 128)


def _arrays(reader: RingReader, position: Position) -> tuple[dict[str, Any], Position]:
    """Returns what is new in a ring as the arrays of its dense rows."""
    parts: list[dict[str, Any]] = []
    while (batch := reader.read(position)) is not None:
        assert not batch.losses, "the ring is too small for a round"
        parts.append(batch.step_requests)
        position = batch.position
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    wanted = {column.name for column in DENSE_TABLES["step_requests"]}
    chosen = {name: array for name, array in arrays.items() if name in wanted}
    engine = np.full(len(next(iter(chosen.values()))), reader.engine, dtype=np.uint64)
    return {"engine": engine, **chosen}, position
