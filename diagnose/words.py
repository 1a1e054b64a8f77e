"""How numbers, times and engines are written for people; untrusted text is made harmless here.

Thousands with a comma, a space before a per cent sign, times of day in UTC with as many digits as
they need.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

from diagnose.reading import NS

NOT_MEASURED = "–"
_CONTROLS = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def count(value: int | float | None) -> str:
    """Returns `1,162`, or a dash where it was not measured."""
    if value is None:
        return NOT_MEASURED
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def percent(ratio: float | None) -> str:
    """Returns `5.9 %` of a ratio from 0 to 1."""
    return NOT_MEASURED if ratio is None else f"{100 * ratio:.1f} %"


def signed_percent(ratio: float) -> str:
    """Returns a change with its sign, such as `-17 %`; what rounds to nothing is `0 %`."""
    rounded = round(100 * ratio)
    return f"{rounded:+d} %" if rounded else "0 %"


def plural(number: int, noun: str) -> str:
    """Returns `1 request`, `2 requests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(ns: int | float | None) -> str:
    """Returns nanoseconds in the unit in which they have two or three digits."""
    if ns is None:
        return NOT_MEASURED
    if ns < 1000:
        return f"{ns:.0f} ns"
    if ns < 1e6:
        return f"{ns / 1e3:.0f} µs"
    if ns < 10e6:
        return f"{ns / 1e6:.1f} ms"
    if ns < NS:
        return f"{ns / 1e6:.0f} ms"
    if ns < 10 * NS:
        return f"{ns / NS:.2f} s"
    if ns < 120 * NS:
        return f"{ns / NS:.1f} s"
    minutes, seconds = divmod(round(ns / NS), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def utc(ts: int) -> datetime:
    """Returns the moment of `ts` nanoseconds since the Unix epoch."""
    return datetime.fromtimestamp(ts // NS, UTC)


def number_of(value: float | None, unit: str, *, short: bool = False) -> str:
    """Returns a value in its unit, or a dash where it was not measured."""
    if value is None:
        return NOT_MEASURED
    match unit:
        case "ratio":
            return f"{100 * value:g} %" if short else percent(value)
        case "ns":
            return duration(value)
        case "x":
            return f"{value:.2f} x"
        case _:
            return f"{value:g}" if short and value < 1 else count(value)


def with_unit(value: float | None, unit: str) -> str:
    """Returns a value as people read it in a sentence: `2 min 6 s`, `6.8 %`, `12 requests`."""
    number = number_of(value, unit)
    return number if unit in ("", "ratio", "ns", "x") else f"{number} {unit}"


def time_of_day(ts: int, digits: int = 1) -> str:
    """Returns `11:55:18.8`; cut, not rounded, so that no moment lies in the future."""
    text = utc(ts).strftime("%H:%M:%S")
    if not digits:
        return text
    return f"{text}.{ts % NS:09d}"[: len(text) + 1 + digits]


def stretch(start_ts: int, end_ts: int) -> str:
    """Returns `2026-11-29 11:55:18.8 to 11:55:26.1 UTC`."""
    digits = 1 if end_ts - start_ts < 30 * NS else 0
    day = utc(start_ts).strftime("%Y-%m-%d")
    last_day = utc(end_ts).strftime("%Y-%m-%d ")
    last_day = "" if last_day.strip() == day else last_day
    first, last = time_of_day(start_ts, digits), time_of_day(end_ts, digits)
    return f"{day} {first} to {last_day}{last} UTC"


def iso(ts: int) -> str:
    """Returns `2026-11-29T11:55:18.848000000Z`, to the nanosecond."""
    return f"{utc(ts).strftime('%Y-%m-%dT%H:%M:%S')}.{ts % NS:09d}Z"


def engine_hex(engine: int) -> str:
    """Returns an engine's number as 16 hex digits: JavaScript would round the number."""
    return f"{engine:016x}"


def harmless(text: str | None, limit: int = 40) -> str:
    """Returns text from outside without control or direction characters, cut to `limit`."""
    if text is None:
        return NOT_MEASURED
    clean = without_controls(text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def connector_name(connector: str | None) -> str:
    """Returns a KV connector's name as it may be printed, or `no connector`."""
    return "no connector" if connector is None else harmless(connector, 24)


def without_controls(text: str) -> str:
    """Returns text with every control or direction character replaced by `?`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("?" if unicodedata.category(char) in _CONTROLS else char for char in text)
