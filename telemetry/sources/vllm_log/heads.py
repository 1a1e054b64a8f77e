"""The head of a line as vLLM writes it: which process, how serious, when, from which place.

    (EngineCore_DP1 pid=21379) INFO 11-29 12:07:43 [core.py:133] Initializing ...
    INFO 11-29 12:07:43 metrics.py:455] Avg prompt ...                      (V0)
    {"asctime": ..., "levelname": "INFO", "message": ...}                   (the JSON formatter)

Torch's C++ code and LMCache write into the same log in forms of their own.
Ray writes process prefixes of its own before vLLM's; the innermost counts.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from telemetry.sources.vllm_log.moments import Moment

_PROCESS = re.compile(
    r"\((?P<name>[^()]{0,120}?),? ?pid=(?P<pid>\d{1,9})(?:, ip=[^()\s]{1,60})?\)\s?"
    r"|\[(?P<rank>rank\d{1,5})\]:\s?"
)
_BAR = re.compile(r".{0,400}?(?:it/s|s/it)\]\s*(?=\(|[A-Z]{4,8} \d\d-\d\d )")
_HEAD = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL) "
    r"(?:(\d{4})-)?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? "
    r"(?:\[([^\]:]{1,200}):(\d+)\]|([\w/.]{1,200}\.py):(\d+)\]) ?"
)
_LMCACHE = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{1,9})\] LMCache ([A-Z]{4,8}): (.*?)"
    r"(?: \(([\w.]{1,80}\.py):(\d+)(?::[\w.]{1,120})?\))?$"
)
_C10D = re.compile(r"\[([IWEF])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+) ([\w./]+):(\d+)\] ?")
_C10D_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_ASCTIME = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_RANK = re.compile(r"(?:_DP|\bDP|EngineCore_)(\d{1,4})(?!\d)")
_MOST_PREFIXES = 3


class Head(NamedTuple):
    """A line that begins as vLLM's do."""

    process: str | None
    pid: int | None
    level: str
    moment: Moment | None
    place: str
    """File and line of the source, like core.py:133."""
    message: str

    @property
    def file(self) -> str:
        """File of the source, without its folders."""
        return self.place.rpartition(":")[0].rpartition("/")[2]


class Bare(NamedTuple):
    """A line that does not, of a process that may be named."""

    process: str | None
    message: str


def parse(text: str) -> Head | Bare:
    """Returns what a line says before its message."""
    if text[:1] == "{" and (head := _json_head(text)) is not None:
        return head
    process, pid, text = _without_process(text)
    match = _HEAD.match(text)
    if match is None and "/" in text and (bar := _BAR.match(text)):
        process, pid, text = _without_process(text[bar.end() :])
        match = _HEAD.match(text)
    if match is not None:
        return _vllm_head(process, pid, match, text)
    if text[:1] == "[" and (match := _C10D.match(text)):
        return _c10d_head(process, pid, match, text)
    if text[:1] == "[" and (match := _LMCACHE.match(text)):
        return _lmcache_head(process, pid, match)
    return Bare(process, text)


def dp_rank(process: str | None) -> int | None:
    """Returns the data-parallel rank that a process's name says, None if it says none."""
    match = _RANK.search(process) if process else None
    return None if match is None else int(match[1])


def _without_process(text: str) -> tuple[str | None, int | None, str]:
    process, pid = None, None
    for _ in range(_MOST_PREFIXES):
        match = _PROCESS.match(text) if text[:1] in ("(", "[") else None
        if match is None:
            break
        process = match["rank"] or match["name"].strip() or process
        pid = int(match["pid"]) if match["pid"] else pid
        text = text[match.end() :]
    return process, pid, text


def _vllm_head(process: str | None, pid: int | None, match: re.Match[str], text: str) -> Head:
    level, year, month, day, hour, minute, second, part, *place = match.groups()
    moment = Moment(
        int(year) if year else None,
        *(int(month), int(day), int(hour), int(minute), int(second)),
        int(part.ljust(9, "0")) if part else None,
    )
    where = f"{place[0] or place[2]}:{place[1] or place[3]}"
    return Head(process, pid, level, moment, where, text[match.end() :])


def _lmcache_head(process: str | None, pid: int | None, match: re.Match[str]) -> Head:
    """Returns the head of a line of LMCache, which names its place at the end, if at all."""
    place = f"lmcache/{match[4] or 'lmcache.py'}:{match[5] or 0}"
    return Head(process, pid, match[2], _asctime(match[1]), place, match[3])


def _c10d_head(process: str | None, pid: int | None, match: re.Match[str], text: str) -> Head:
    """Returns the head of a line of torch's C++ code, which uses another form."""
    month, day, hour, minute, second = (int(match[i]) for i in range(2, 7))
    moment = Moment(None, month, day, hour, minute, second, int(match[7].ljust(9, "0")[:9]))
    place = f"{match[8]}:{match[9]}"
    return Head(process, pid, _C10D_LEVELS[match[1]], moment, place, text[match.end() :])


def _json_head(text: str) -> Head | None:
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    message, level = entry.get("message"), entry.get("levelname")
    if not (isinstance(message, str) and isinstance(level, str)):
        return None
    pid = entry.get("process")
    return Head(
        _str_or_none(entry.get("processName")),
        pid if isinstance(pid, int) else None,
        level,
        _asctime(entry.get("asctime")),
        f"{str(entry.get('name') or '').rpartition('.')[2]}.py:0",
        message,
    )


def _asctime(text: Any) -> Moment | None:
    match = _ASCTIME.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    part = match[7]
    return Moment(year, month, day, hour, minute, second, int(part.ljust(9, "0")) if part else None)


def _str_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
