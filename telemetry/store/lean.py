"""How a day's dense file keeps `step_requests`: each number as its distance from what it should be.

A dense row says ten things, and most of them follow from the others: a decoding request wants the
one token that it lacks, is given it, and holds the blocks that its tokens fill. DuckDB packs a
column that is nearly always 0 into nearly nothing, so only the place in the step, the request and
its computed tokens still cost bytes. Nothing is rounded and nothing is guessed: what does not
follow is kept as it is, NULL included.

Rows do not depend on each other, so a query reads the days and columns that it needs and no more.
`request`, `step` and `ts` are kept plain: they are what people search by.
"""

from __future__ import annotations

import numpy as np

from telemetry.records import NULLS, Column
from telemetry.store.rows import Array, Batch
from telemetry.tables import DENSE_TABLES, SQL_TYPES

TABLE = "step_requests"
"""The table that readers see, and that plain rows of older versions lie in."""
LEAN_TABLE = "lean_step_requests"
"""The table that the rows are stored in."""

BUFFERED: dict[str, tuple[Column, ...]] = {
    **DENSE_TABLES,
    TABLE: (*DENSE_TABLES[TABLE], Column("block_size", "u4", True, "tokens of a KV block")),
}
"""Columns of dense rows on their way into a file: the engine's block size comes along."""

_DERIVED = ("num_wanted_tokens", "num_scheduled_tokens", "num_known_tokens", "num_blocks")
_PLAIN = tuple(column for column in BUFFERED[TABLE] if column.name not in _DERIVED)
_DISTANCES = (
    "num_uncomputed_tokens",
    "num_unwanted_tokens",
    "num_withheld_tokens",
    "num_more_blocks",
)
"""Known less computed tokens; these less the wanted; these less the scheduled; and the blocks that
are more than its tokens fill."""
_NUM_FILLED_BLOCKS = (
    "CASE WHEN block_size > 0 THEN (coalesce(num_computed_tokens, 0)::BIGINT "
    "+ coalesce(num_scheduled_tokens, 0) + block_size - 1) // block_size ELSE 0 END"
)
"""The blocks that a request's tokens fill once the step is done."""


def lean_columns() -> list[tuple[str, str]]:
    """Returns name and type of the columns that are stored."""
    plain = [(column.name, SQL_TYPES[column.dtype]) for column in _PLAIN]
    return [*plain, *((name, "BIGINT") for name in _DISTANCES)]


def create_lean_table(database: str) -> str:
    """Returns the statement that makes the table in a dense file."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in lean_columns())
    return f"CREATE TABLE IF NOT EXISTS {database}.{LEAN_TABLE} ({columns})"


def lean_batch(batch: Batch) -> Batch:
    """Returns the rows of a batch of `step_requests` as the lean table keeps them."""
    computed, _ = _numbers(batch, "num_computed_tokens")
    known, is_known_null = _numbers(batch, "num_known_tokens")
    wanted, is_wanted_null = _numbers(batch, "num_wanted_tokens")
    scheduled, is_scheduled_null = _numbers(batch, "num_scheduled_tokens")
    blocks, is_blocks_null = _numbers(batch, "num_blocks")
    size, _ = _numbers(batch, "block_size")
    uncomputed = known - computed
    filled = np.where(size > 0, (computed + scheduled + size - 1) // np.maximum(size, 1), 0)
    distances = {
        "num_uncomputed_tokens": (uncomputed, is_known_null),
        "num_unwanted_tokens": (np.where(is_known_null, 0, uncomputed) - wanted, is_wanted_null),
        "num_withheld_tokens": (wanted - scheduled, is_scheduled_null),
        "num_more_blocks": (blocks - filled, is_blocks_null),
    }
    lean = Batch(
        LEAN_TABLE,
        [column for column in batch.columns if column.name not in _DERIVED],
        {name: array for name, array in batch.arrays.items() if name not in _DERIVED},
        batch.with_nulls - set(_DERIVED),
    )
    for name, (values, is_null) in distances.items():
        if is_null.all():
            continue
        lean.columns.append(Column(name, "i8", True, ""))
        lean.arrays[name] = np.where(is_null, NULLS["i8"], values)
        if is_null.any():
            lean.with_nulls.add(name)
    return lean


def _numbers(batch: Batch, name: str) -> tuple[Array, Array]:
    """Returns a column as signed numbers, 0 where it is NULL, and where that is."""
    array = batch.arrays.get(name)
    if array is None:
        num = len(next(iter(batch.arrays.values())))
        return np.zeros(num, np.int64), np.ones(num, bool)
    if name not in batch.with_nulls:
        return array.astype(np.int64), np.zeros(len(array), bool)
    is_null = array == NULLS["u4"]
    return np.where(is_null, 0, array.astype(np.int64)), is_null


def select_plain(database: str) -> str:
    """Returns the SELECT that gives a file's rows as they were before they were made lean."""
    columns = ", ".join(
        f'TRY_CAST("{c.name}" AS {SQL_TYPES[c.dtype]}) AS "{c.name}"' if c.name in _DERIVED
        else f'"{c.name}"'
        for c in DENSE_TABLES[TABLE]
    )  # fmt: skip
    return f"""
        SELECT {columns} FROM (
          SELECT *, num_more_blocks + {_NUM_FILLED_BLOCKS} AS num_blocks FROM (
            SELECT *, coalesce(num_wanted_tokens, 0) - num_withheld_tokens AS num_scheduled_tokens
            FROM (
              SELECT *, num_uncomputed_tokens + coalesce(num_computed_tokens, 0)
                  AS num_known_tokens,
                coalesce(num_uncomputed_tokens, 0) - num_unwanted_tokens AS num_wanted_tokens
              FROM {database}.{LEAN_TABLE})))"""
