"""Moments become episodes as somebody would group them one by one."""

from __future__ import annotations

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from diagnose.episodes import EPISODES_SQL

Grouped = list[tuple[int, int, int]]


def one_by_one(moments: list[int], gap: int, start: int) -> Grouped:
    """Returns first and last of each run that reaches `start`, and how many lie from there on."""
    runs: list[list[int]] = []
    for moment in sorted(moments):
        if runs and moment - runs[-1][-1] <= gap:
            runs[-1].append(moment)
        else:
            runs.append([moment])
    return [
        (run[0], run[-1], sum(moment >= start for moment in run))
        for run in runs
        if run[-1] >= start
    ]


def in_sql(moments: list[int], gap: int, start: int) -> Grouped:
    listed = f"SELECT unnest({moments}::BIGINT[]) AS ts"
    sql = EPISODES_SQL.format(moments=listed, gap=gap, start=start)
    found: Grouped = duckdb.sql(sql).fetchall()
    return found


@given(
    moments=st.lists(st.integers(0, 200), max_size=30),
    gap=st.integers(1, 30),
    start=st.integers(0, 200),
)
def test_a_pause_longer_than_a_gap_begins_another(moments: list[int], gap: int, start: int) -> None:
    assert in_sql(moments, gap, start) == one_by_one(moments, gap, start)


def test_a_pause_of_just_a_gap_does_not() -> None:
    assert in_sql([29, 59, 60, 91], 30, 0) == [(29, 60, 3), (91, 91, 1)]
