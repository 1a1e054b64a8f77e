"""What a command line asks to be replayed: which stretch, which clients, under which settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from diagnose.reading import QueryLog
from diagnose.replay.edits import with_clients
from diagnose.replay.recorded_load import read_workload
from diagnose.replay.settable import ChangeError, parse_setting
from diagnose.replay.workload import ClientKind, Workload
from diagnose.window import Window

NEXT = re.compile(r",(?=\s*-*[A-Za-z_][\w-]*\s*=)")
"""A comma before the next setting; one within a number (`8,192`) is none."""

Clients = tuple[ClientKind, int | None]
"""How clients behave, and how many wait for answers where somebody says so."""


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Returns the changes of `NAME=VALUE[,NAME=VALUE]`, given once or several times; all together.

    Raises:
        ChangeError: there is no such setting, it does not take this value, or has two of them.
    """
    changes: dict[str, Any] = {}
    for text in (each for given in texts for each in NEXT.split(given)):
        name, value = parse_setting(text)
        if name in changes:
            raise ChangeError(f"{name} is given twice: a what-if has one value of a setting")
        changes[name] = value
    return changes


def parse_clients(text: str | None) -> Clients | None:
    """Returns how clients behave in `open`, `closed` or `closed:N`; `None`: as was detected.

    Raises:
        ValueError: it is something else.
    """
    if text is None:
        return None
    kind, _, number = text.partition(":")
    if kind not in ("open", "closed") or (number and not number.isdecimal()):
        raise ValueError(f"--clients is {text!r}: it takes open, closed or closed:N")
    return cast("ClientKind", kind), int(number) if number else None


def read_asked(
    log: QueryLog, engine: int, window: Window, clients: Clients | None, *, is_whole: bool
) -> Workload:
    """Returns the load that is to be replayed.

    Args:
        log: the log.
        engine: the engine.
        window: the stretch.
        clients: how clients behave; as was detected if `None`.
        is_whole: the stretch is all of a closed log: the load begins with the first request.

    Raises:
        ReplayError: the log lacks what a replay needs.
        ValueError: a closed loop of a number of clients that nobody said or detected.
    """
    start_ts = None if is_whole else window.start_ts
    workload = read_workload(log, engine, start_ts, window.end_ts)
    return workload if clients is None else with_clients(workload, *clients)
