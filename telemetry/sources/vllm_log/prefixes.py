"""What an environment puts before, around and into a line, and how it comes off.

Colours; docker's JSON files and `--timestamps`; Kubernetes' CRI files, with lines in parts;
journald, as text and as JSON; `kubectl --prefix`, docker compose, exports of Loki. Several may
stand one inside the other. What they know and vLLM does not is kept: the exact time, and the host.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from telemetry.sources.vllm_log.moments import Moment
from telemetry.sources.vllm_log.reading import LONGEST_LINE

_COLOUR = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BROKEN_COLOUR = re.compile(r"\[(?:\d{1,3};)*\d{1,3}m")
"""A colour whose escape character somebody has taken away."""
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)? "
)
_CRI = re.compile(r"(stdout|stderr) ([FP])(?::\S*)? ?")
_SHORT = re.compile(
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ([ \d]\d) "
    r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))? "
)
_JOURNAL = re.compile(r"([\w.-]{1,255}) [^\s\[\]:]{1,64}(?:\[\d+\])?: ?")
_LABEL = re.compile(r"\[pod/[\w./-]{1,600}\] |[\w.-]{1,128} +\| ")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MOST_LAYERS = 4
_TEXTS = ("log", "MESSAGE", "message", "line", "textPayload")
_TIMES = ("time", "timestamp", "@timestamp")
"""Names of the line and of its time in JSON: docker, journald, and collectors of logs."""
_DOCKER_PART = 16_000
"""Docker cuts lines at 16 KiB; a shorter one without a line end is whole."""

_MOST_STREAMS = 16


class Unwrapped(NamedTuple):
    """A line without what its environment added."""

    text: str
    moment: Moment | None = None
    host: str | None = None


class Unwrapper:
    """Takes environments off the lines of one file; joins lines that one of them had cut."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        """The beginnings of lines whose end has not come yet, by stream."""

    def unwrap(self, line: str) -> Unwrapped | None:
        """Returns the line inside; None where it is a part and more of it is to come."""
        text = _COLOUR.sub("", line) if "\x1b" in line else line
        if _BROKEN_COLOUR.match(text):
            text = _BROKEN_COLOUR.sub("", text)
        if text[:1] == "{":
            return self._of_json(text)
        moment, host = None, None
        for _ in range(_MOST_LAYERS):
            inner, new_moment, new_host, part = _one_layer(text)
            if part is not None:
                whole = self._joined(part[1], inner, is_whole=part[2] == "F")
                if whole is None:
                    return None
                inner = whole
            if inner is text:
                break
            text, moment, host = inner, moment or new_moment, host or new_host
        return Unwrapped(text, moment, host)

    def _of_json(self, line: str) -> Unwrapped | None:
        """Returns the line inside docker's or journald's JSON; the line as it is if neither."""
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return Unwrapped(line)
        name = next((name for name in _TEXTS if name in entry), None)
        if name is None or "levelname" in entry:  # the latter is vLLM's own
            return Unwrapped(line)
        content = _message(entry[name])
        is_whole = content.endswith("\n") or len(content) < _DOCKER_PART
        whole = self._joined(str(entry.get("stream")), content, is_whole)
        if whole is None:
            return None
        host = entry.get("_HOSTNAME")
        return Unwrapped(
            _COLOUR.sub("", whole.rstrip("\r\n")),
            _realtime_moment(entry.get("__REALTIME_TIMESTAMP")) or _json_moment(entry),
            host if isinstance(host, str) else None,
        )

    def _joined(self, stream: str, part: str, is_whole: bool) -> str | None:
        whole = (self._parts.pop(stream, "") + part)[:LONGEST_LINE]
        if is_whole:
            return whole
        if len(self._parts) >= _MOST_STREAMS:
            self._parts.clear()
        self._parts[stream] = whole
        return None


def _one_layer(text: str) -> tuple[str, Moment | None, str | None, re.Match[str] | None]:
    """Returns the text inside, the time and host it had, and what CRI says of its stream."""
    first = text[:1]
    if first.isdigit() and (match := _ISO.match(text)):
        rest, moment = text[match.end() :].removeprefix("| "), _moment(match)
        if cri := _CRI.match(rest):
            return rest[cri.end() :], moment, None, cri
        if journal := _JOURNAL.match(rest):
            return rest[journal.end() :], moment, journal[1], None
        return rest, moment, None, None
    if first in "JFMASOND" and (match := _SHORT.match(text)):
        rest, moment = text[match.end() :], _short_moment(match)
        if journal := _JOURNAL.match(rest):
            return rest[journal.end() :], moment, journal[1], None
    elif ("|" in text[:160] or first == "[") and (match := _LABEL.match(text)):
        return text[match.end() :], None, None, None
    return text, None, None, None


def _moment(match: re.Match[str]) -> Moment:
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    offset = None
    if zone := match[8]:
        digits = zone[1:].replace(":", "")
        offset = 0 if zone == "Z" else 60 * (60 * int(digits[:2]) + int(digits[2:]))
        offset = -offset if zone[0] == "-" else offset
    return Moment(year, month, day, hour, minute, second, _nanos(match[7]), offset)


def _short_moment(match: re.Match[str]) -> Moment:
    day, hour, minute, second = (int(match[i]) for i in range(2, 6))
    month = _MONTHS.index(match[1]) + 1
    return Moment(None, month, day, hour, minute, second, _nanos(match[6]))


def _nanos(digits: str | None) -> int | None:
    return int(digits.ljust(9, "0")) if digits else None


def _json_moment(entry: dict[str, Any]) -> Moment | None:
    text = next((entry[name] for name in _TIMES if isinstance(entry.get(name), str)), "")
    match = _ISO.match(f"{text} ")
    return None if match is None else _moment(match)


def _realtime_moment(micros: Any) -> Moment | None:
    """Returns journald's time, in microseconds since the epoch."""
    if not (isinstance(micros, str) and micros.isdigit() and len(micros) < 18):
        return None
    seconds, rest = divmod(int(micros), 1_000_000)
    return Moment(*datetime.fromtimestamp(seconds, UTC).timetuple()[:6], rest * 1000, 0)


def _message(message: Any) -> str:
    """Returns the text of a line, which journald gives as bytes where it is not plain."""
    if isinstance(message, list) and all(isinstance(b, int) and 0 <= b < 256 for b in message):
        return bytes(message).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""
