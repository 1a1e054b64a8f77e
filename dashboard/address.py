"""What the address says: engine, request and window, so that a pasted one shows the same thing.

Times are ISO 8601, UTC, to the millisecond; engines are 16 hex digits. A value that cannot be read
is as good as absent: an address comes from outside.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from diagnose.words import engine_hex

NS_PER_MS = 1_000_000
MAX_REQUEST = (1 << 32) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str | None) -> int | None:
    """Returns ns since the Unix epoch of an ISO time; without a zone it is UTC."""
    if not text or len(text) > 40:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = moment - _EPOCH
    ns = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
    return ns if 0 <= ns < 1 << 62 else None


def format_time(ts: int) -> str:
    """Returns `2026-11-29T11:55:18.848Z`."""
    whole = datetime.fromtimestamp(ts // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{ts // NS_PER_MS % 1000:03d}Z"


def parse_engine(text: str | None) -> int | None:
    """Returns the engine of 16 hex digits."""
    return int(text, 16) if text and re.fullmatch(r"[0-9a-fA-F]{16}", text) else None


def parse_request(text: str | None) -> int | None:
    """Returns a request's number."""
    if not text or not re.fullmatch(r"[0-9]{1,10}", text):
        return None
    number = int(text)
    return number if number <= MAX_REQUEST else None


def parse_window(parameters: Mapping[str, str]) -> tuple[int, int] | None:
    """Returns from and to; None unless both can be read and `from` comes first."""
    start, end = parse_time(parameters.get("from")), parse_time(parameters.get("to"))
    if start is None or end is None or start >= end:
        return None
    return start, end


def link(
    base: str,
    page: str,
    *,
    log: str | None,
    engine: int,
    start_ts: int,
    end_ts: int,
    own: Mapping[str, str] | None = None,
) -> str:
    """Returns the address of a page with absolute times; `own` is what only that page knows."""
    parameters = {"engine": engine_hex(engine)}
    if log is not None:
        parameters["log"] = log
    parameters |= own or {}
    rounded_up = -(-end_ts // NS_PER_MS) * NS_PER_MS
    parameters |= {"from": format_time(start_ts), "to": format_time(rounded_up)}
    return f"{base.rstrip('/')}/{page}?{urlencode(parameters)}"
