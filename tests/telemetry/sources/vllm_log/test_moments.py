"""Times of a log become times of the world, with what they do not say inferred and told."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

import pytest

from telemetry.errors import StepscopeError
from telemetry.sources.vllm_log.moments import LogClock, Moment, zone_named

NS = 10**9


def ns(*when: int) -> int:
    return round(datetime(*when, tzinfo=UTC).timestamp()) * NS  # type: ignore[misc, arg-type]


def clock_of(*written: int, zone: tzinfo = UTC, year: int | None = None) -> LogClock:
    return LogClock(zone, ns(*written), year)


def test_the_year_is_the_newest_that_is_not_later_than_the_file() -> None:
    clock = clock_of(2026, 2, 1)
    assert clock.ns_of(Moment(None, 12, 30, 8, 0, 0)) == ns(2025, 12, 30, 8)
    assert clock.is_inferred


def test_a_new_year_begins_where_the_months_jump_back() -> None:
    clock = clock_of(2026, 2, 1)
    times = [
        clock.ns_of(Moment(None, 12, 31, 23, 59, 59)),
        clock.ns_of(Moment(None, 1, 1, 0, 0, 0)),
    ]
    assert times == [ns(2025, 12, 31, 23, 59, 59), ns(2026, 1, 1)]


def test_a_straggler_of_the_old_year_stays_in_it() -> None:
    clock = clock_of(2026, 2, 1)
    clock.ns_of(Moment(None, 12, 31, 23, 59, 59))
    clock.ns_of(Moment(None, 1, 1, 0, 0, 0))
    assert clock.ns_of(Moment(None, 12, 31, 23, 59, 58)) == ns(2025, 12, 31, 23, 59, 58)


def test_a_year_that_is_given_counts() -> None:
    clock = clock_of(2026, 2, 1, year=2024)
    assert clock.ns_of(Moment(None, 12, 30, 8, 0, 0)) == ns(2024, 12, 30, 8)
    assert not clock.is_inferred


def test_29_february_lies_in_a_leap_year() -> None:
    assert clock_of(2027, 1, 1).ns_of(Moment(None, 2, 29, 0, 0, 0)) == ns(2024, 2, 29)


def test_a_log_that_runs_past_its_file_is_noticed() -> None:
    clock = clock_of(2026, 2, 1)
    for month in (1, 6, 11):
        clock.ns_of(Moment(None, month, 1, 0, 0, 0))
    assert clock.is_beyond_file


def test_times_without_a_zone_are_of_the_zone_that_is_given() -> None:
    clock = clock_of(2026, 8, 1, zone=zone_named("Europe/Berlin"))
    assert clock.ns_of(Moment(None, 7, 1, 12, 0, 0)) == ns(2026, 7, 1, 10)
    assert clock.used_zone


def test_a_zone_that_is_written_counts() -> None:
    clock = clock_of(2026, 8, 1, zone=zone_named("Europe/Berlin"))
    assert clock.ns_of(Moment(2026, 7, 1, 12, 0, 0, 5, 0)) == ns(2026, 7, 1, 12) + 5
    assert not clock.used_zone


def test_lines_of_one_second_keep_their_order() -> None:
    clock = clock_of(2026, 8, 1)
    moment = Moment(2026, 7, 1, 12, 0, 0)
    times = [clock.ns_of(moment) for _ in range(3)]
    assert times == [ns(2026, 7, 1, 12) + micros * 1000 for micros in range(3)]


def test_exact_times_stay_as_they_are() -> None:
    clock = clock_of(2026, 8, 1)
    moment = Moment(2026, 7, 1, 12, 0, 0, 250)
    assert [clock.ns_of(moment), clock.ns_of(moment)] == [ns(2026, 7, 1, 12) + 250] * 2


@pytest.mark.parametrize("moment", [Moment(None, 13, 1, 0, 0, 0), Moment(None, 2, 30, 0, 0, 0)])
def test_a_day_that_does_not_exist_has_no_time(moment: Moment) -> None:
    assert clock_of(2026, 8, 1).ns_of(moment) is None


def test_an_unknown_zone_is_refused_with_an_example() -> None:
    with pytest.raises(StepscopeError, match=r"--tz is 'Mars/Olympus'.*Europe/Berlin"):
        zone_named("Mars/Olympus")
