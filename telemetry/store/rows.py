"""Rows on their way into the step log: column arrays, gathered by table until a flush.

In a batch NULL is what `records.NULLS` says, NaN in a float, None in a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from telemetry.records import NULLS, Column

Array: TypeAlias = np.ndarray[Any, Any]
Columns: TypeAlias = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one table. A column that is all NULL is left out: each costs DuckDB 50 µs a flush."""

    table: str
    columns: list[Column]
    arrays: Columns
    with_nulls: set[str]
    """Columns in which some value is NULL."""


class RowBuffer:
    """Column arrays of several tables, in the order in which they were added."""

    def __init__(self, tables: Mapping[str, tuple[Column, ...]]) -> None:
        self._tables = tables
        self._chunks: dict[str, list[Columns]] = {}

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, table: str, columns: Mapping[str, Array]) -> None:
        """Adds rows; columns that the table does not have are left out."""
        known = {c.name for c in self._tables[table]}
        chosen = {name: array for name, array in columns.items() if name in known}
        if chosen and len(next(iter(chosen.values()))):
            self._chunks.setdefault(table, []).append(chosen)

    def add_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds rows given one by one; what a row lacks, or does not fit, is NULL."""
        if rows:
            self.add(table, columns_from(self._tables[table], rows))

    def take(self) -> Iterable[Batch]:
        """Yields the rows of each table, and forgets them."""
        chunks, self._chunks = self._chunks, {}
        for table, parts in chunks.items():
            columns, arrays, with_nulls = [], {}, set()
            for c in self._tables[table]:
                if not any(c.name in part for part in parts):
                    continue
                array = _joined(c, parts)
                is_null = _is_null(c, array)
                if is_null.all():
                    continue
                columns.append(c)
                arrays[c.name] = array
                if is_null.any():
                    with_nulls.add(c.name)
            yield Batch(table, columns, arrays, with_nulls)


def _joined(column: Column, parts: list[Columns]) -> Array:
    arrays = [
        part[column.name] if column.name in part else nulls(column, len(next(iter(part.values()))))
        for part in parts
    ]
    return np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))


def stored(column: Column) -> np.dtype[Any]:
    """Returns the numpy type in which a batch keeps a column."""
    if column.dtype in ("str", "u4[]"):
        return np.dtype(object)
    return np.dtype("u1" if column.dtype == "bool" else column.dtype)


def nulls(column: Column, num: int) -> Array:
    """Returns `num` NULLs of a column."""
    return np.full(num, _null(column), dtype=stored(column))


def _is_null(column: Column, array: Array) -> Array:
    if column.dtype == "f8":
        return np.isnan(array)
    if column.dtype in ("str", "u4[]"):
        return np.array([value is None for value in array], dtype=bool)
    return np.asarray(array == _null(column))


def _null(column: Column) -> Any:
    if column.dtype in ("str", "u4[]"):
        return None
    if column.dtype == "f8":
        return np.nan
    return NULLS["u1" if column.dtype == "bool" else column.dtype]


def columns_from(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Returns rows as column arrays; only columns that some row names."""
    named = {name for row in rows for name in row}
    return {
        c.name: np.array([_fitted(c, row.get(c.name)) for row in rows], dtype=stored(c))
        for c in columns
        if c.name in named
    }


_LIMITS = {dtype: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) for dtype in NULLS}
"""Smallest and largest value of each whole-number type."""


def _fitted(column: Column, value: Any) -> Any:
    """Returns a value from outside as the batch keeps it; NULL where it does not fit."""
    if value is None:
        return _null(column)
    match column.dtype:
        case "str":
            return clean_text(value if isinstance(value, str) else json.dumps(value, default=str))
        case "u4[]":
            return list_text(value)
        case "bool":
            return int(bool(value))
        case "f8":
            return float(value) if isinstance(value, int | float) else np.nan
        case dtype:
            least, most = _LIMITS[dtype]
            return value if isinstance(value, int) and least <= value <= most else NULLS[dtype]


def list_text(value: Any) -> str | None:
    """Returns a list of counts as text that DuckDB casts to a list."""
    if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
        return None
    return "[" + ", ".join(str(v) if 0 <= v < NULLS["u4"] else "NULL" for v in value) + "]"


def clean_text(text: str) -> str:
    """Returns text that DuckDB takes: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
