"""Engines that nobody records: scrapes, log lines, spans and KV events are all there is of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from telemetry.doctor.check import Check, count_text, utc_text
from telemetry.sources.prometheus.names import CANONICAL
from telemetry.store import Log

NEWEST = """
(SELECT max(ts) FROM samples), (SELECT max(ts) FROM log_lines),
(SELECT max(ts) FROM engine_spans), (SELECT max(ts) FROM kv_events)
"""
"""The newest row of each table that sources fill."""

_SEEN = """
SELECT engine, CASE source WHEN 'prometheus' THEN 'scrapes' ELSE 'log lines' END AS what,
    count(*) FILTER (metric IN ({names})) AS number, max(ts) AS newest_ts
FROM samples GROUP BY ALL
UNION ALL SELECT engine, 'log lines of trouble', count(*), max(ts) FROM log_lines GROUP BY engine
UNION ALL SELECT engine, 'spans', count(*), max(ts) FROM engine_spans GROUP BY engine
UNION ALL SELECT engine, 'KV events', count(*), max(ts) FROM kv_events GROUP BY engine
ORDER BY ALL
"""


def seen_from_outside(log: Log) -> dict[int, list[dict[str, Any]]]:
    """Returns, per engine, what sources saw of it, how often and when last."""
    names = ", ".join(f"'{name}'" for name in CANONICAL["num_running"])
    found: dict[int, list[dict[str, Any]]] = {}
    for row in log.query(_SEEN.format(names=names)).to_pylist():
        found.setdefault(row["engine"], []).append(row)
    return found


def outside_checks(seen: list[dict[str, Any]]) -> Iterator[Check]:
    """Yields what there is to say of an engine that nobody records."""
    yield from (
        Check(
            "good",
            "seen outside",
            f"{count_text(row['number'])} {row['what']}, the newest {utc_text(row['newest_ts'])} "
            "UTC",
        )
        for row in seen
    )
    yield Check(
        "unknown", "recording", "nobody records it: no step, no request, no cause is in the log"
    )
