from __future__ import annotations

import pytest

from diagnose.window import LIVE_WINDOW_NS, choose_window, engines_in, parse_duration
from tests.diagnose.logs import described, log_of, steps

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [("500ms", SECOND // 2), ("90s", 90 * SECOND), ("10m", 600 * SECOND), ("1.5h", 5400 * SECOND)],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "10", "0m", "-5m", "ten minutes", "1w", "nan s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="--since is"):
        parse_duration(text)


def test_a_closed_log_is_looked_at_whole() -> None:
    log = steps(described(), 10).advance(3600 * SECOND)
    steps(log, 10)
    window = choose_window(log_of(log))
    assert window.duration_ns > 3600 * SECOND


def test_a_live_log_is_looked_at_for_fifteen_minutes() -> None:
    log = steps(described(), 10).advance(3600 * SECOND)
    steps(log, 10)
    assert choose_window(log_of(log), is_live=True).duration_ns == LIVE_WINDOW_NS


def test_since_counts_back_from_the_newest_row() -> None:
    log = steps(described(), 1000)
    window = choose_window(log_of(log), 2 * SECOND)
    assert window.end_ts == max(row["updated_ts"] for row in log.rows["steps"])
    assert window.duration_ns == 2 * SECOND


def test_since_does_not_reach_before_the_log() -> None:
    log = steps(described(), 10)
    assert choose_window(log_of(log), 3600 * SECOND) == choose_window(log_of(log))


def test_an_engine_without_a_row_in_the_window_is_not_in_it() -> None:
    old = steps(described(engine=3), 10)
    log = described(engine=4).advance(3600 * SECOND)
    steps(log, 10)
    memory = log_of(old, log)
    assert engines_in(memory, choose_window(memory, 60 * SECOND)) == [4]
