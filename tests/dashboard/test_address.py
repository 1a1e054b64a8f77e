"""The address: times, engines and requests, there and back; nonsense is as good as absent."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard import address

START = 1_764_417_318_848_000_000


def test_a_time_survives_the_address_to_the_millisecond() -> None:
    assert address.parse_time(address.format_time(START)) == START


def test_a_time_without_a_zone_is_utc() -> None:
    assert address.parse_time("2025-11-29T11:55:18.848") == START


def test_a_time_of_another_zone_is_converted() -> None:
    assert address.parse_time("2025-11-29T12:55:18.848+01:00") == START


@pytest.mark.parametrize("text", [None, "", "yesterday", "1969-01-01T00:00:00Z", "9" * 50])
def test_what_is_no_time_is_absent(text: str | None) -> None:
    assert address.parse_time(text) is None


def test_an_engine_is_sixteen_hex_digits() -> None:
    assert address.parse_engine("7000000000000001") == 0x7000000000000001


@pytest.mark.parametrize("text", [None, "7", "0x70000000000001", "7000000000000001 OR 1=1"])
def test_what_is_no_engine_is_absent(text: str | None) -> None:
    assert address.parse_engine(text) is None


@pytest.mark.parametrize("text", [None, "-1", "1.5", "4294967296", "٣", "1;DROP"])
def test_what_is_no_request_is_absent(text: str | None) -> None:
    assert address.parse_request(text) is None


def test_a_window_needs_both_ends_in_order() -> None:
    early, late = address.format_time(START), address.format_time(START + 10**9)
    assert address.parse_window({"from": early, "to": late}) == (START, START + 10**9)
    assert address.parse_window({"from": late, "to": early}) is None
    assert address.parse_window({"from": early}) is None


def test_a_link_shows_the_whole_window_again() -> None:
    link = address.link(
        "http://127.0.0.1:8501/",
        "requests",
        log="demo",
        engine=0x7000000000000001,
        start_ts=START,
        end_ts=START + 1,
        own={"request": "60"},
    )
    parameters = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    assert urlsplit(link).path == "/requests"
    assert parameters["log"] == "demo"
    assert address.parse_request(parameters["request"]) == 60
    assert address.parse_engine(parameters["engine"]) == 0x7000000000000001
    window = address.parse_window(parameters)
    assert window is not None
    assert window[1] >= START + 1
