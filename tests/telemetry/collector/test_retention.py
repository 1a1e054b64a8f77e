"""Which days a log may lose."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.collector.retention import (
    RetentionLimits,
    StoredFile,
    read_limits,
    removals,
)
from telemetry.errors import StepscopeError
from telemetry.store.files import DayFile

NOW = 1_795_910_400_000_000_000  # 2026-11-29, 0:00 UTC
LOG = Path("log")


def stored(*names: str, size: int = 100) -> list[StoredFile]:
    """Files by their names: 11-20 is a day's main file, 11-20d its dense one."""
    return [
        StoredFile(DayFile(f"2026-{name.rstrip('d')}", name.endswith("d"), LOG), size)
        for name in names
    ]


def removed(
    files: list[StoredFile], in_use: list[StoredFile] | None = None, **limits: int
) -> list[tuple[str, str]]:
    found = removals(
        files,
        RetentionLimits(**limits),
        now_ns=NOW,
        in_use={each.file for each in in_use or []},
    )
    return [
        (each.stored.file.day[5:] + ("d" if each.stored.file.dense else ""), each.limit_name)
        for each in found
    ]


def test_without_limits_nothing_goes() -> None:
    assert removed(stored("01-01", "01-01d")) == []


def test_a_day_goes_once_it_is_older_than_its_limit() -> None:
    files = stored("11-26", "11-27", "11-28", "11-29")
    assert removed(files, keep_days=2) == [("11-26", "keep_days")]
    assert removed(files, keep_days=3) == []


def test_dense_rows_go_earlier_and_with_their_day_in_any_case() -> None:
    files = stored("11-20", "11-20d", "11-27", "11-27d", "11-28", "11-28d")
    assert removed(files, keep_days=5, keep_dense_days=1) == [
        ("11-20d", "keep_days"),
        ("11-27d", "keep_dense_days"),
        ("11-20", "keep_days"),
    ]


def test_size_takes_dense_files_first_and_the_oldest_first() -> None:
    files = stored("11-20", "11-20d", "11-21", "11-21d", "11-29", "11-29d")
    assert removed(files, max_bytes=600) == []
    assert removed(files, max_bytes=599) == [("11-20d", "max_bytes")]
    assert removed(files, max_bytes=399) == [
        ("11-20d", "max_bytes"),
        ("11-21d", "max_bytes"),
        ("11-20", "max_bytes"),
    ]


def test_what_age_removes_counts_for_the_size() -> None:
    files = stored("11-20", "11-21", "11-28")
    assert removed(files, keep_days=7, max_bytes=100) == [
        ("11-20", "keep_days"),
        ("11-21", "keep_days"),
    ]


def test_today_and_what_is_in_use_stay() -> None:
    files = stored("11-20", "11-20d", "11-29", "11-29d", "11-30")
    assert removed(files, in_use=files[:2], keep_days=0, max_bytes=1) == []


def test_a_file_named_after_no_day_is_left_alone() -> None:
    assert removed(stored("02-31"), keep_days=1) == []


def test_limits_come_from_flags_else_from_the_environment() -> None:
    environment = {"STEPSCOPE_KEEP_DAYS": "30", "STEPSCOPE_MAX_BYTES": "1.5G"}
    assert read_limits(environment, keep_days="7", keep_dense_days="2") == RetentionLimits(
        keep_days=7, keep_dense_days=2, max_bytes=1_610_612_736
    )
    assert read_limits({}) == RetentionLimits()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("keep_days", "-1"),
        ("keep_days", "week"),
        ("keep_dense_days", "1.5"),
        ("max_bytes", "0"),
        ("max_bytes", "20 parsecs"),
        ("max_bytes", "-3G"),
    ],
)
def test_a_limit_that_is_none_is_refused(name: str, text: str) -> None:
    with pytest.raises(StepscopeError, match=f"--{name.replace('_', '-')} is {text!r}"):
        read_limits({}, **{name: text})


def test_limits_are_told_in_words() -> None:
    assert str(RetentionLimits()) == "everything"
    limits = RetentionLimits(keep_days=30, keep_dense_days=3, max_bytes=20 << 30)
    assert str(limits) == "30 days, dense rows 3 days, at most 20 GiB"
