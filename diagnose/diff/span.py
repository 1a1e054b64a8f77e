"""`FROM..TO`: UTC times, or so long before the newest row; either end may be left out."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from diagnose.window import Window, parse_duration

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLE = "2026-11-29T11:55:18..2026-11-29T11:56:00, -20m..-10m or ..-10m"


def parse_span(text: str, whole: Window) -> Window:
    """Returns the window that `FROM..TO` means inside a log.

    Args:
        text: two ends, each an ISO 8601 time (UTC where it names no zone), or `-10m`, so long
            before the log's newest row, or nothing: where the log begins or ends.
        whole: all of the log.

    Raises:
        ValueError: an end cannot be read, they are not in order, or nothing of it is in the log.
    """
    first, dots, last = text.partition("..")
    if not dots:
        raise ValueError(f"{text!r} is no window: write FROM..TO, such as {_EXAMPLE}")
    start = _moment(first, whole, whole.start_ts)
    end = _moment(last, whole, whole.end_ts)
    if start >= end:
        raise ValueError(f"{text!r} ends before it begins: write the earlier end first")
    if start > whole.end_ts or end < whole.start_ts:
        raise ValueError(f"{text!r} lies outside the log: see what it holds with stepscope doctor")
    return Window(start_ts=start, end_ts=end)


def _moment(text: str, whole: Window, default: int) -> int:
    text = text.strip()
    if not text:
        return default
    if re.match(r"-\s*\d", text):
        return whole.end_ts - parse_duration(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write it like {_EXAMPLE}") from None
    since = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
