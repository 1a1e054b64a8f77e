"""What `stepscope import` makes of files: the log of an engine without a recorder."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from diagnose.reading import QueryLog
from telemetry.store import open_log


def imported(source: str, files: Path, log: Path) -> QueryLog:
    """Returns the log that an import of scrapes (`prometheus`) or of a `vllm-log` gives.

    Raises:
        RuntimeError: it was refused; the message says why.
    """
    from stepscope import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(["import", source, str(files), "--log", str(log)])
    if code:
        raise RuntimeError(f"stepscope import {source} ended with {code}: {said.getvalue()}")
    return open_log(log)
