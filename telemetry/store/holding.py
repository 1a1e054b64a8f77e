"""Rows of a view that many statements ask for, worked out once for one reader.

A diagnosis asks the view `preemptions` seven times, and each time it is joined anew out of the
events. The files of a log that somebody has open for reading do not change; so a reader who has
much to ask may hold the rows in a temporary table of the same name. Unqualified names find it
before the view, a statement stays as it is, and nothing is written to the log. A live log is never
held, nor one with more rows than `MAX_HELD_ROWS`: there the view answers as ever.
"""

from __future__ import annotations

import contextlib
from typing import Any

import duckdb

from telemetry.store.guard import Limits, timed

MAX_HELD_ROWS = 1_000_000
"""The most rows that are held: about 400 bytes each, spilled to files where memory is short."""
HELD = "preemptions"
_COUNT = "SELECT count(*) FROM request_events WHERE kind = event_kind('preempted')"
"""As many rows as the view has, without its joins."""


def hold_preemptions(connection: Any, limits: Limits) -> bool:
    """Puts a table in front of the view `preemptions`; returns whether there is one now.

    Where it takes longer than a query may, or there is no room, the view stays what is asked.
    """
    with contextlib.suppress(duckdb.Error), timed(connection, limits.timeout_seconds):
        ((num_rows,),) = connection.execute(_COUNT).fetchall()
        if num_rows <= MAX_HELD_ROWS:
            connection.execute(f"CREATE TEMP TABLE {HELD} AS FROM {HELD}")
            return True
    return False
