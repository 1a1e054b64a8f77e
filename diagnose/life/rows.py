"""Changes as rows of the table `findings`, and what is remembered of findings out of such rows.

An analyst that starts again reads here what the last one told. What lies between two looks (who is
away since when) is not stored: a hold-down begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from diagnose.finding import Severity
from diagnose.life.ends import OVER
from diagnose.life.look import Sighting, count_in
from diagnose.life.machine import FLAP_WINDOW_NS, Change, Event, Life, Status
from diagnose.life.shares import shares_in
from diagnose.reading import QueryLog, read_rows

_ROWS = """
SELECT engine, finding, ts, event, status, rule, rule_version, severity, opened_ts, cleared_ts,
  num_openings, reason,
  CASE WHEN ts = max(ts) OVER (PARTITION BY engine, finding) THEN body END AS body
FROM findings
WHERE status IS NOT NULL AND finding IS NOT NULL
ORDER BY ts
"""
_OPENINGS = ("opened", "reopened", "flapping")


def row_of(change: Change) -> dict[str, Any]:
    """Returns a change as it is posted."""
    seen = change.sighting
    return {
        "engine": seen.engine,
        "finding": seen.id,
        "ts": change.ts,
        "event": change.event,
        "status": change.status,
        "rule": seen.rule,
        "rule_version": seen.rule_version,
        "severity": seen.severity.name,
        "opened_ts": change.opened_ts,
        "cleared_ts": change.cleared_ts,
        "num_openings": change.num_openings,
        "reason": change.reason or None,
        "body": seen.body,
    }


def read_lives(log: QueryLog) -> dict[str, Life]:
    """Returns what is remembered of every finding of a log."""
    return lives_of(read_rows(log, _ROWS))


def lives_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Life]:
    """Returns what is remembered after rows of changes, which come in order."""
    lives: dict[str, Life] = {}
    for row in rows:
        change = _change(row)
        lives[row["finding"]] = _after(lives.get(row["finding"]), change)
    return lives


def _after(life: Life | None, change: Change) -> Life:
    """Returns what is remembered once a change has been told."""
    severity, ts = change.sighting.severity, change.ts
    last_open_ts = change.cleared_ts or change.opened_ts
    known = life or Life(
        told=change,
        worst=severity,
        openings=(),
        num_openings=change.num_openings,
        turned_ts=ts,
        is_active=True,
        last_open_ts=last_open_ts,
    )
    openings, worst = known.openings, max(known.worst, severity)
    if change.event in _OPENINGS:
        openings = (*(each for each in openings if ts - each < FLAP_WINDOW_NS), ts)
        worst = severity
    return replace(
        known,
        told=change,
        worst=worst,
        openings=openings,
        num_openings=change.num_openings,
        turned_ts=ts,
        is_active=change.status not in OVER,
        last_open_ts=last_open_ts,
    )


def _change(row: Mapping[str, Any]) -> Change:
    return Change(
        ts=row["ts"],
        event=cast("Event", row["event"]),
        status=cast("Status", row["status"]),
        sighting=_sighting(row),
        opened_ts=row["opened_ts"],
        cleared_ts=row["cleared_ts"],
        num_openings=row["num_openings"] or 1,
        reason=row["reason"] or "",
    )


def _sighting(row: Mapping[str, Any]) -> Sighting:
    body = row["body"] or "{}"
    document = json.loads(body)
    cause = document.get("cause") or {}
    by_replays = bool(shares_in(document))
    return Sighting(
        id=row["finding"],
        engine=row["engine"],
        rule=row["rule"],
        rule_version=row["rule_version"] or 1,
        severity=Severity[row["severity"]],
        cause=None if by_replays else str(cause.get("kind", "undetermined")),
        count=count_in(document),
        opened_ts=row["opened_ts"],
        cleared_ts=row["cleared_ts"],
        body=body,
    )
