"""Logs as a user has them, imported as a user does it: through the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stepscope
from telemetry.store import open_log

CAPTURED = Path(__file__).parents[3] / "data" / "vllm" / "logs"
"""Whole logs of vLLM 0.32 servers, written in November 2026."""

STATS = (
    "Engine 000: Avg prompt throughput: 120.0 tokens/s, Avg generation throughput: 480.5 tokens/s, "
    "Running: 12 reqs, Waiting: 3 reqs, GPU KV cache usage: 87.5%, Prefix cache hit rate: 25.0%"
)
LINE = f"INFO 03-14 09:26:53 [loggers.py:161] {STATS}\n"
"""The line of every ten seconds, as vLLM 0.9 writes it."""


TABLES = ("samples", "log_lines", "engines", "imports")


@dataclass(slots=True)
class Imported:
    """What an import left: its tables, read once."""

    log: Path
    code: int
    _tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Returns the rows of a query on the step log."""
        with open_log(self.log) as opened:
            return list(opened.query(sql).to_pylist())

    def table(self, name: str) -> list[dict[str, Any]]:
        """Returns the rows of one of `TABLES`; do not use it before another import."""
        if not self._tables:
            with open_log(self.log) as opened:
                for table in TABLES:
                    self._tables[table] = opened.query(f"FROM {table} ORDER BY ALL").to_pylist()
        return self._tables[name]

    def values(self, rank: str = "0") -> dict[str, float]:
        """Returns the newest value of each metric of a rank."""
        rows = sorted(self.table("samples"), key=lambda row: int(row["ts"]))
        return {
            row["metric"]: row["value"]
            for row in rows
            if json.loads(row["labels"])["engine"] == rank
        }

    def events(self) -> list[tuple[str, str | None, str | None]]:
        """Returns kind, process and text of each event, in the order of its line."""
        rows = sorted(self.table("log_lines"), key=lambda row: int(row["line"]))
        return [(row["kind"], row["process"], row["text"]) for row in rows]

    def kinds(self) -> list[str]:
        """Returns the kinds of the events, in the order of their lines."""
        return [kind for kind, _, _ in self.events()]

    def engine(self) -> dict[str, Any]:
        """Returns the description of the only engine."""
        (row,) = self.table("engines")
        return row

    def told(self) -> dict[str, Any]:
        """Returns the row of the only import, with its details."""
        (row,) = self.table("imports")
        return {**row, **json.loads(row["detail"])}

    def everything(self) -> str:
        """Returns all that the step log holds, as text."""
        return json.dumps([self.table(name) for name in TABLES], default=str)


def import_file(file: Path, log: Path, *flags: str) -> Imported:
    """Imports one file, whose first line is of 2026 unless a flag says otherwise."""
    year = () if "--year" in flags or "--no-year" in flags else ("--year", "2026")
    asked = [flag for flag in flags if flag != "--no-year"]
    code = stepscope.main(["import", "vllm-log", str(file), "--log", str(log), *year, *asked])
    return Imported(log, code)


def import_text(tmp_path: Path, text: str | bytes, *flags: str, name: str = "vllm.log") -> Imported:
    """Imports a log of this text."""
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return import_file(file, tmp_path / "log", *flags)
