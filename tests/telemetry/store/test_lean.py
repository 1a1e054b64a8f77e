"""Dense rows are stored lean and read as they were."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.store import open_log
from telemetry.store.lean import BUFFERED, LEAN_TABLE, TABLE, create_lean_table, lean_batch
from telemetry.store.lean import select_plain as plain
from telemetry.store.rows import RowBuffer
from telemetry.store.schema import insert_statement
from telemetry.store.writer import LogWriter
from telemetry.tables import DENSE_TABLES

DAY = "2026-11-29"
NAMES = [column.name for column in DENSE_TABLES[TABLE]]


def values(dtype: str, *, nullable: bool) -> st.SearchStrategy[int | None]:
    bits = {"u1": 8, "u2": 16, "u4": 32, "u8": 64, "i8": 63}[dtype]
    numbers = st.integers(0, 2**bits - 2) | st.integers(0, 40)  # the largest is NULL
    return st.none() | numbers if nullable else numbers


ROWS = st.lists(
    st.fixed_dictionaries({c.name: values(c.dtype, nullable=c.nullable) for c in BUFFERED[TABLE]}),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_any_rows_are_read_as_they_were_written(rows: list[dict[str, Any]]) -> None:
    connection = duckdb.connect()
    connection.execute("SET pandas_analyze_sample = 0")
    connection.execute(create_lean_table("memory"))
    buffer = RowBuffer(BUFFERED)
    buffer.add_rows(TABLE, rows)
    (batch,) = map(lean_batch, buffer.take())
    connection.register("new_rows", batch.arrays)
    connection.execute(
        insert_statement("memory", batch.table, batch.columns, batch.with_nulls, "new_rows")
    )
    got = connection.execute(f"SELECT {', '.join(NAMES)} FROM ({plain('memory')})").fetchall()
    assert got == [tuple(row[name] for name in NAMES) for row in rows]


def decoding(num_steps: int, num_requests: int) -> Mapping[str, np.ndarray[Any, Any]]:
    """Steps in which every request decodes one token."""
    step = np.repeat(np.arange(num_steps, dtype=np.uint64), num_requests)
    slot = np.tile(np.arange(num_requests, dtype=np.uint32), num_steps)
    prompts = np.random.default_rng(0).integers(50, 8_000, num_requests, dtype=np.uint32)
    computed = prompts[slot] + step.astype(np.uint32)
    one = np.ones(len(step), np.uint32)
    return {
        "engine": np.full(len(step), 7, np.uint64),
        "ts": 1_795_000_000_000_000_000 + step.astype(np.int64) * 20_000_000,
        "slot": slot,
        "step": step,
        "request": slot + 1_000,
        "num_wanted_tokens": one,
        "num_scheduled_tokens": one,
        "num_computed_tokens": computed,
        "num_known_tokens": computed + 1,
        "num_blocks": (computed + 16) // 16,
        "block_size": 16 * one,
    }


def test_a_decoding_request_costs_five_bytes_a_step(tmp_path: Path) -> None:
    columns = decoding(num_steps=1_000, num_requests=256)
    writer = LogWriter(tmp_path, [DAY], dense=True)
    for part in range(0, 256_000, 12 * 256):
        rows = writer.new_rows(dense=True)
        rows.add(TABLE, {name: array[part : part + 12 * 256] for name, array in columns.items()})
        writer.write(DAY, rows, dense=True)
    writer.close()
    assert (tmp_path / f"{DAY}.dense.duckdb").stat().st_size / 256_000 < 6.0  # 5, and the tables
    with open_log(tmp_path) as log:
        (row,) = log.query(
            "SELECT count(*) AS n, sum(num_known_tokens)::UBIGINT AS known, "
            "sum(num_blocks)::UBIGINT AS blocks FROM step_requests"
        ).to_pylist()
    assert row == {
        "n": 256_000,
        "known": int(columns["num_known_tokens"].sum(dtype=np.int64)),
        "blocks": int(columns["num_blocks"].sum(dtype=np.int64)),
    }


def test_rows_of_an_older_version_lie_beside_lean_ones(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, [DAY], dense=True)
    rows = writer.new_rows(dense=True)
    rows.add_rows(TABLE, [{"engine": 1, "step": 2, "ts": 3, "slot": 0, "request": 4}])
    writer.write(DAY, rows, dense=True)
    writer.close()
    file = duckdb.connect(str(tmp_path / f"{DAY}.dense.duckdb"))
    assert file.execute(f"SELECT count(*) FROM {LEAN_TABLE}").fetchone() == (1,)
    file.execute("INSERT INTO step_requests BY NAME SELECT 1 AS engine, 1 AS step, 5 AS num_blocks")
    file.close()
    with open_log(tmp_path) as log:
        got = log.query("SELECT step, num_blocks FROM step_requests ORDER BY step").to_pylist()
    assert got == [{"step": 1, "num_blocks": 5}, {"step": 2, "num_blocks": None}]


def test_a_window_of_time_reads_the_stored_times_alone(tmp_path: Path) -> None:
    """The view must not hide from DuckDB what it can leave out."""
    writer = LogWriter(tmp_path, [DAY], dense=True)
    writer.close()
    with open_log(tmp_path) as log:
        (row,) = log.query("EXPLAIN SELECT count(*) FROM step_requests WHERE ts > 5").to_pylist()
    plan = row["explain_value"]
    assert LEAN_TABLE in plan.replace("\n", "") or "EMPTY_RESULT" in plan
