"""Values on their way into the step log: what does not fit becomes NULL, not an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from telemetry.records import NULLS, Column
from telemetry.store.rows import RowBuffer, columns_from


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("u4", 7, 7),
        ("u4", -1, NULLS["u4"]),
        ("u4", 1 << 40, NULLS["u4"]),
        ("u4", "7", NULLS["u4"]),
        ("u4", 7.5, NULLS["u4"]),
        ("u4", None, NULLS["u4"]),
        ("i4", -5, -5),
        ("u8", (1 << 64) - 2, (1 << 64) - 2),
        ("bool", True, 1),
        ("bool", False, 0),
        ("bool", None, 255),
        ("f8", 2, 2.0),
        ("str", "é", "é"),
        ("str", "\ud800", "?"),
        ("str", {"a": 1}, '{"a": 1}'),
        ("str", None, None),
        ("u4[]", [1, 2], "[1, 2]"),
        ("u4[]", [1, -2], "[1, NULL]"),
        ("u4[]", "no list", None),
        ("u4[]", [], "[]"),
    ],
)
def test_a_value_is_kept_or_null(dtype: str, value: Any, expected: Any) -> None:
    arrays = columns_from([Column("c", dtype, True, "")], [{"c": value}])
    assert arrays["c"].tolist() == [expected]


def test_chunks_with_different_columns_are_joined() -> None:
    columns = (Column("a", "u4", True, ""), Column("b", "str", True, ""))
    rows = RowBuffer({"t": columns})
    rows.add("t", {"a": np.array([1, 2], np.uint32), "not_a_column": np.array([0, 0])})
    rows.add_rows("t", [{"b": "x"}])
    [batch] = rows.take()
    assert batch.arrays["a"].tolist() == [1, 2, NULLS["u4"]]
    assert batch.arrays["b"].tolist() == [None, None, "x"]
    assert batch.with_nulls == {"a", "b"}
    assert not rows


def test_a_column_without_a_value_is_left_out() -> None:
    columns = (Column("a", "u4", True, ""), Column("b", "f8", True, ""))
    rows = RowBuffer({"t": columns})
    rows.add_rows("t", [{"a": 1, "b": None}])
    [batch] = rows.take()
    assert [c.name for c in batch.columns] == ["a"]
    assert batch.with_nulls == set()
