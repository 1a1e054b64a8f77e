"""Which of the three kinds of source was named, and the progress of reading it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from telemetry.errors import ImportRefused, QueryRefused, StepscopeError
from telemetry.query.window import NS_PER_SECOND, moment
from telemetry.sources.prometheus.directory import time_in
from telemetry.sources.prometheus.dump import import_dump
from telemetry.sources.prometheus.fetch import Access, read_url
from telemetry.sources.prometheus.pages import import_file, import_scrapes
from telemetry.sources.prometheus.server import PrometheusServer, Window
from telemetry.sources.prometheus.window import import_window
from telemetry.sources.telling import ImportTold

DEFAULT_SINCE = "1h"
_WINDOW_FLAGS = ("since", "start", "end", "step", "match")


def import_source(args: argparse.Namespace, access: Access) -> ImportTold:
    """Imports what was named; returns what was read.

    Raises:
        StepscopeError: It is not there, cannot be read, or a flag does not fit it.
    """
    place = str(args.place)
    with _progress_bar(place) as moved:
        if "://" in place:
            server = PrometheusServer(read_url("SOURCE", place), access, _labels(args.match))
            told = import_window(args.log, server, _window(args), moved)
            if not (args.start or args.since):
                told.notes.append(
                    f"only the last {DEFAULT_SINCE} was asked for: --since 1d for more"
                )
            return told
        for flag in _WINDOW_FLAGS:
            if getattr(args, flag):
                raise StepscopeError(
                    f"--{flag} chooses from a Prometheus server, and {place} is none: leave it out"
                )
        return _import_path(args, Path(place), moved)


def _import_path(
    args: argparse.Namespace, path: Path, moved: Callable[[int, int], None]
) -> ImportTold:
    name = args.target or path.resolve().name or str(path)
    if path.is_dir():
        return import_scrapes(args.log, path, name, moved)
    if not path.is_file():
        raise ImportRefused(
            f"{path} is not there: name a directory of scrapes, a file, or the address of a "
            "Prometheus server, like http://127.0.0.1:9090"
        )
    if time_in(path.name) is not None:
        return import_file(args.log, path, args.target or path.resolve().parent.name, moved)
    return import_dump(args.log, path, name, moved)


def _labels(match: list[str]) -> list[tuple[str, str]]:
    found = []
    for text in match:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or not name.isascii():
            raise StepscopeError(f"--match is {text!r}: write LABEL=VALUE, like namespace=prod")
        found.append((name, value))
    return found


def _window(args: argparse.Namespace) -> Window:
    """Returns the window that the flags name.

    Raises:
        StepscopeError: They name none.
    """
    now = time.time_ns()
    end = _moment("--end", args.end, now) if args.end else now
    if args.start and args.since:
        raise StepscopeError("--start and --since both say where the window begins: choose one")
    if args.start:
        start = _moment("--start", args.start, end)
    else:
        start = end - _length("--since", args.since or DEFAULT_SINCE)
    if start >= end:
        raise StepscopeError(f"the window ends before it begins: {_utc(start)} to {_utc(end)} UTC")
    step = _length("--step", args.step) if args.step else None
    if step is not None and step < NS_PER_SECOND:
        raise StepscopeError(f"--step is {args.step}: 1s is the shortest")
    return Window(
        start_ms=start // 10**6,
        end_ms=end // 10**6,
        step_ms=None if step is None else step // 10**6,
    )


def _moment(flag: str, text: str, newest_ns: int) -> int:
    """Returns a moment, written as one or in unix seconds, in ns since the Unix epoch.

    Raises:
        StepscopeError: It is none.
    """
    try:
        return round(float(text) * 1000) * 10**6
    except (ValueError, OverflowError):
        pass
    try:
        return moment(flag, text, newest_ns)
    except QueryRefused:
        raise StepscopeError(
            f"{flag} is {text!r}: write a day and time in UTC (2026-11-29T14:02), or unix seconds"
        ) from None


def _length(flag: str, text: str) -> int:
    """Returns a length in ns.

    Raises:
        StepscopeError: It is none.
    """
    try:
        return -moment(flag, text, 0)
    except QueryRefused:
        raise StepscopeError(f"{flag} is {text!r}: write a length, like 15s, 10m, 1h, 2d") from None


def _utc(ns: int) -> str:
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")


@contextmanager
def _progress_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Shows on stderr, if that is a terminal, how far the reading is."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(f"reading {name}".replace("\x1b", "?")[:80], total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
