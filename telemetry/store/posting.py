"""What may be written into a log by others than its collector: changes of findings.

A log with a live collector takes them through its socket, one without is written directly, under
its lock. Whatever comes is checked in both places: known columns, bounded texts, words of closed
sets, and each kind of row complete.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from telemetry.errors import CollectorError, LogBusy, LogNotFound, PostRefused
from telemetry.store import wire
from telemetry.store.files import day_files, day_of
from telemetry.store.lock import take_lock
from telemetry.store.log import connect_to
from telemetry.store.presence import is_collected
from telemetry.store.writer import LogWriter

Row: TypeAlias = Mapping[str, Any]

CHANGES = frozenset(
    {"opened", "updated", "reopened", "cleared", "flapping", "settled", "ended", "explained"}
)
"""Events of a finding itself."""
SAYINGS = frozenset({"acknowledged", "silenced", "unsilenced"})
"""Events that a person makes."""
STATUSES = frozenset({"open", "flapping", "cleared", "ended"})
SEVERITIES = frozenset({"info", "medium", "high", "critical"})

MAX_ROWS = 500
MAX_BODY_CHARACTERS = 256 << 10
MAX_POST_BYTES = 1 << 20
"""Bytes of rows in one message, but for a single larger row; the message itself may have four
times as many."""
_TEXTS = {"rule": 100, "reason": 1000, "author": 100, "note": 2000, "body": MAX_BODY_CHARACTERS}
_NUMBERS = {
    "engine": (0, (1 << 64) - 2),
    "ts": (1, (1 << 63) - 1),
    "rule_version": (0, 1 << 31),
    "opened_ts": (0, (1 << 63) - 1),
    "cleared_ts": (0, (1 << 63) - 1),
    "num_openings": (1, 1 << 31),
    "until_ts": (0, (1 << 63) - 1),
}
_WORDS = {"event": CHANGES | SAYINGS, "status": STATUSES, "severity": SEVERITIES}
_ID = re.compile(r"[a-z0-9][a-z0-9-]{1,62}")
_NEEDED = {
    **dict.fromkeys(
        CHANGES,
        ("engine", "finding", "rule", "severity", "status", "opened_ts", "num_openings", "body"),
    ),
    "acknowledged": ("engine", "finding", "rule", "author"),
    "silenced": ("author", "until_ts"),
    "unsilenced": ("author",),
}
"""What a row of each event cannot do without."""
_PATIENCE_SECONDS = 20.0
_START_SECONDS = 10.0


def checked(rows: Any) -> list[dict[str, Any]]:
    """Returns rows of `findings` that may be stored.

    Raises:
        PostRefused: They may not; the message names row, column and what is allowed.
    """
    if not isinstance(rows, list | tuple) or not 1 <= len(rows) <= MAX_ROWS:
        raise PostRefused(f"a post has 1 to {MAX_ROWS} rows in a list")
    return [_checked_row(number, row) for number, row in enumerate(rows)]


def _checked_row(number: int, row: Any) -> dict[str, Any]:
    where = f"row {number} of the post"
    if not isinstance(row, Mapping):
        raise PostRefused(f"{where} is no object")
    for name, value in row.items():
        if value is not None:
            _check_value(where, str(name), value)
    event = row.get("event")
    if event is None or row.get("ts") is None:
        raise PostRefused(f"{where} needs event and ts")
    missing = [name for name in _NEEDED[event] if row.get(name) is None]
    if missing:
        raise PostRefused(f"{where} is {event} and lacks {', '.join(missing)}")
    if event in ("silenced", "unsilenced") and row.get("rule") is None is row.get("engine"):
        raise PostRefused(f"{where} is {event} and names neither a rule nor an engine")
    return dict(row)


def _check_value(where: str, name: str, value: Any) -> None:
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise PostRefused(f"{where}: {name} is a whole number from {least} to {most}")
    elif name in _WORDS:
        if value not in _WORDS[name]:
            raise PostRefused(f"{where}: {name} is one of {', '.join(sorted(_WORDS[name]))}")
    elif name in _TEXTS:
        if not isinstance(value, str) or len(value) > _TEXTS[name]:
            raise PostRefused(f"{where}: {name} is a text of at most {_TEXTS[name]:,} characters")
        if name == "body":
            _check_body(where, value)
    elif name == "finding":
        if not isinstance(value, str) or not _ID.fullmatch(value):
            raise PostRefused(f"{where}: finding is an id of lower case letters, digits and dashes")
    else:
        raise PostRefused(f"{where} has a column that `findings` has not: {name[:40]!r}")


def _check_body(where: str, text: str) -> None:
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise PostRefused(f"{where}: body is no JSON object")


def write_findings(writer: LogWriter, rows: Sequence[Row], day: str) -> None:
    """Writes checked rows into a day's file, in one transaction.

    Raises:
        LogBusy, duckdb.Error: The log cannot be written now.
    """
    buffer = writer.new_rows(dense=False)
    buffer.add_rows("findings", rows)
    writer.prepare(day)
    writer.write(day, buffer, dense=False)


# ------------------------------------------------------------------------------------------ posted


def post_findings(target: Path, rows: Sequence[Row]) -> None:
    """Stores rows in a log, alive or closed; returns once they are committed.

    Raises:
        PostRefused: A row may not be stored; none is.
        LogNotFound, LogBusy, CollectorError: The log cannot be reached; it may be tried again.
    """
    for part in _parts(checked(list(rows))):
        _post(target, part)


def _parts(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yields rows in messages of a bounded size."""
    part: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        length = len(json.dumps(row))
        if part and size + length > MAX_POST_BYTES:
            yield part
            part, size = [], 0
        part.append(row)
        size += length
    yield part


def _post(target: Path, rows: list[dict[str, Any]]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        connect = connect_to(target)
        if connect is not None:
            return _send(target, connect, rows)
        if not is_collected(target):
            return _write_directly(target, rows)
        if time.monotonic() > deadline:
            raise LogBusy(f"the collector of {target} does not answer: see {target}/collector.log")
        time.sleep(0.05)


def _send(target: Path, connect: Callable[[], socket.socket], rows: list[dict[str, Any]]) -> None:
    try:
        with connect() as client:
            client.settimeout(_PATIENCE_SECONDS)
            wire.send_post(client, rows)
            wire.receive_stored(client)
    except OSError as error:
        raise CollectorError(
            f"the collector of {target} did not say that it stored the post ({error}): ask again"
        ) from error


def _write_directly(log: Path, rows: list[dict[str, Any]]) -> None:
    """Writes into a log that nobody collects; a bundle or a directory without a log is none."""
    if not day_files(log):
        raise LogNotFound(f"{log} holds no step log that could be written: name one with --log")
    try:
        lock = take_lock(log)
    except CollectorError as error:
        raise LogBusy(str(error)) from None
    try:
        before = os.umask(0o077)
        try:
            writer = LogWriter(log, [day_of(time.time_ns())], dense=False)
        finally:
            os.umask(before)
        try:
            write_findings(writer, rows, day_of(time.time_ns()))
        finally:
            writer.close()
    finally:
        os.close(lock)
