"""Which logs a visitor may see: the one the dashboard was started with, and those below it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from telemetry.errors import LogNotFound
from telemetry.store.files import day_files
from telemetry.store.presence import is_collected

ROOT_VARIABLE = "STEPSCOPE_LOG"
"""How `stepscope dashboard` tells the pages which log they show."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Stamp = tuple[tuple[str, int, int], ...]


def root_log() -> Path:
    """Returns the log that the dashboard was started with.

    Raises:
        LogNotFound: it was not started through its command.
    """
    value = os.environ.get(ROOT_VARIABLE)
    if not value:
        raise LogNotFound("no log was named: start the dashboard with `stepscope dashboard --log`")
    return Path(value)


def resolve(root: Path, name: str | None) -> Path:
    """Returns the log that an address means: the root, or a log in a folder right below it.

    Raises:
        LogNotFound: the name is no plain folder name, leads elsewhere, or holds no log.
    """
    if name is None:
        return root
    path = root / name
    plain = _NAME.fullmatch(name) is not None
    if not plain or path.resolve().parent != root.resolve() or not is_log(path):
        raise LogNotFound(
            "the address names a log that is not below the one this dashboard was started with: "
            "leave `log` out of it, or start another dashboard with --log"
        )
    return path


def is_log(path: Path) -> bool:
    """Returns whether a directory holds a step log, or a collector that writes one."""
    return bool(day_files(path)) or is_collected(path)


def logs_below(root: Path) -> list[str]:
    """Returns the names that an address may give as `log`."""
    if not root.is_dir():
        return []
    return sorted(
        entry.name
        for entry in root.iterdir()
        if _NAME.fullmatch(entry.name)
        and entry.is_dir()
        and not entry.is_symlink()
        and is_log(entry)
    )


def stamp_of(path: Path) -> Stamp:
    """Returns what changes when a closed log or a bundle does: its files' sizes and times."""
    found = []
    for file in [path] if path.is_file() else [each.path for each in day_files(path)]:
        stat = file.stat()
        found.append((file.name, stat.st_mtime_ns, stat.st_size))
    return tuple(found)
