"""Which rows of each table belong to a window.

Of steps, heartbeats and dense rows: those of the window. Of requests: the whole story up to the
window's end of each that lived in it, as its times are told from its arrival on. Nothing is newer
than the window's end, so a bundle reads like the log did at that moment.
"""

from __future__ import annotations

from telemetry.sql.schema import BASE_TABLES
from telemetry.vocabulary import EventKind

_IN_WINDOW = "ts BETWEEN $from_ns AND $until_ns"
_RUNNING = (
    "engine IN (SELECT engine FROM steps WHERE ts BETWEEN $from_ns AND $until_ns "
    "UNION SELECT engine FROM heartbeats WHERE ts BETWEEN $from_ns AND $until_ns "
    "UNION SELECT engine FROM request_events WHERE ts BETWEEN $from_ns AND $until_ns "
    "UNION SELECT engine FROM samples WHERE ts BETWEEN $from_ns AND $until_ns "
    "UNION SELECT engine FROM log_lines WHERE ts BETWEEN $from_ns AND $until_ns "
    "UNION SELECT engine FROM engine_spans WHERE ts BETWEEN $from_ns AND $until_ns "
    "UNION SELECT engine FROM kv_events WHERE ts BETWEEN $from_ns AND $until_ns)"
)
_ALIVE = (
    "(engine, request) IN (SELECT (a.engine, a.request) FROM request_arrivals a "
    "WHERE a.ts <= $until_ns AND NOT EXISTS (FROM request_finishes f "
    "WHERE f.engine = a.engine AND f.request = a.request AND f.ts < $from_ns))"
)
_OF_REQUESTS = f"ts <= $until_ns AND {_RUNNING} AND (ts >= $from_ns OR {_ALIVE})"
_LASTING = ", ".join(
    f"{kind:d}"
    for kind in (EventKind.engine_starting, EventKind.engine_started, EventKind.config_changed)
)
"""Events of an engine that still hold in the window when they happened before it."""

CONDITIONS: dict[str, str] = {
    "engines": _RUNNING,
    "clock_anchors": f"ts <= $until_ns AND {_RUNNING}",
    "heartbeats": _IN_WINDOW,
    "steps": _IN_WINDOW,
    "step_requests": _IN_WINDOW,
    "request_arrivals": _OF_REQUESTS,
    "session_inputs": _OF_REQUESTS,
    "request_finishes": _OF_REQUESTS,
    "encoder_items": _OF_REQUESTS,
    "request_events": (
        f"ts <= $until_ns AND {_RUNNING} AND (ts >= $from_ns OR kind IN ({_LASTING}) OR {_ALIVE})"
    ),
    "samples": _IN_WINDOW,
    "log_lines": _IN_WINDOW,
    "engine_spans": _IN_WINDOW,
    "kv_events": _IN_WINDOW,
    "imports": "from_ts <= $until_ns AND until_ts >= $from_ns",
    "findings": (
        "ts >= $from_ns AND coalesce(opened_ts, ts) <= $until_ns"
        " OR coalesce(until_ts, 0) >= $from_ns AND ts <= $until_ns"
    ),
    "drains": _RUNNING,
    "removed_days": "ts <= $until_ns",
}
"""What holds of a row that belongs to a window, per table, in the order in which they are copied:
findings come late, as they may name what other tables name."""

LEFT_OUT = frozenset({"exports"})
"""Tables that say something of the collector and nothing of the engines."""

assert {*CONDITIONS, *LEFT_OUT} == set(BASE_TABLES)


def moment_column(table: str) -> str | None:
    """Returns the column by which a table can be read piece by piece; None: it is small."""
    return None if table in ("engines", "drains") else "ts"


def select(table: str) -> str:
    """Returns the SELECT of a table's rows of the window `$from_ns` to `$until_ns`.

    Where the table is read piece by piece, `$first` and `$last` are the ends of the piece.
    """
    columns = ", ".join(f'"{column.name}"' for column in BASE_TABLES[table])
    if table == "step_requests":
        columns += (
            ", (SELECT max(block_size) FROM engines e WHERE e.engine = t.engine) AS block_size"
        )
    moment = moment_column(table)
    piece = "" if moment is None else f" AND {moment} BETWEEN $first AND $last ORDER BY {moment}"
    return f"SELECT {columns} FROM {table} t WHERE ({CONDITIONS[table]}){piece}"
