"""What `--since` and `--until` mean."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from telemetry.errors import QueryRefused
from telemetry.query.window import choose_window, moment
from telemetry.store import Log
from tests.telemetry.recorded_run import START

NEWEST = int(datetime(2025, 11, 29, 14, 30, 5, tzinfo=UTC).timestamp()) * 10**9 + 7


def at(*numbers: int) -> int:
    return int(datetime(*numbers, tzinfo=UTC).timestamp()) * 10**9  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", NEWEST - 3600 * 10**9),
        ("90s", NEWEST - 90 * 10**9),
        ("500ms", NEWEST - 5 * 10**8),
        ("1.5m", NEWEST - 90 * 10**9),
        ("2d", NEWEST - 172_800 * 10**9),
        ("14:02", at(2025, 11, 29, 14, 2)),
        ("14:02:30", at(2025, 11, 29, 14, 2, 30)),
        ("2025-11-28", at(2025, 11, 28)),
        ("2025-11-28 23:59", at(2025, 11, 28, 23, 59)),
        ("2025-11-28T23:59:59Z", at(2025, 11, 28, 23, 59, 59)),
        ("2025-11-29T01:00:00+02:00", at(2025, 11, 28, 23)),
    ],
)
def test_a_time_is_understood(text: str, expected: int) -> None:
    assert moment("--since", text, NEWEST) == expected


@pytest.mark.parametrize("text", ["", "soon", "5", "-1h", "1w", "25:00", "2025-13-01", "1e9s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(QueryRefused, match="write how far back from the log's newest row"):
        moment("--since", text, NEWEST)


def test_without_a_wish_it_is_the_whole_of_a_closed_log(log: Log) -> None:
    window = choose_window(log, None, None)
    (row,) = log.query("SELECT max(updated_ts) AS ts FROM steps").to_pylist()
    assert window.from_ns == START
    assert window.until_ns >= row["ts"]


def test_a_length_counts_back_from_the_newest_row_not_from_now(log: Log) -> None:
    whole = choose_window(log, None, None)
    last = choose_window(log, "10s", None)
    assert last.until_ns == whole.until_ns
    assert last.from_ns == whole.until_ns - 10 * 10**9


def test_microseconds_are_kept() -> None:
    assert (
        moment("--until", "2025-11-29T14:02:00.000001", NEWEST) == at(2025, 11, 29, 14, 2) + 1_000
    )
