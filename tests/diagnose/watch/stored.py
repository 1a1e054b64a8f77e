"""Stored findings in memory, and the notices that they give."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from diagnose.finding import Severity
from diagnose.reading import NS
from diagnose.watch.news import News, Notice
from telemetry.store.posting import checked
from tests.telemetry.log_builder import connect
from tests.telemetry.posts import FINDING, change, saying

RULE = "kv-preemption-pressure"
NOW = 1_764_417_720 * NS
"""2025-11-29 12:02:00 UTC."""


class StoredFindings:
    """A log that holds findings and nothing else; each row is a second later than the last."""

    def __init__(self) -> None:
        self._connection = connect()
        self.now = NOW

    def query(self, sql: str, params: Any = None) -> pa.Table:
        return self._connection.execute(sql, params or []).to_arrow_table()

    def change(self, event: str = "opened", **columns: Any) -> None:
        status = {"cleared": "cleared", "flapping": "flapping"}.get(event, "open")
        cleared_ts = NOW + 7 * NS if event == "cleared" else None
        own = {"event": event, "status": status, "opened_ts": NOW, "cleared_ts": cleared_ts}
        self._insert(change(**(own | columns)))

    def saying(self, event: str, **columns: Any) -> None:
        self._insert(saying(event, **columns))

    def acknowledge(self, author: str = "dana") -> None:
        self.saying("acknowledged", engine=0xA1, finding=FINDING, rule=RULE, author=author)

    def silence(self, seconds: int, **place: Any) -> None:
        self.saying("silenced", **(place or {"rule": RULE}), until_ts=self.now + seconds * NS)

    def end_engine(self, engine: int = 0xA1, kind: str = "engine_died") -> None:
        """The engine ends, a second later than the last row."""
        self.now += NS
        self._connection.execute(
            "INSERT INTO request_events BY NAME SELECT ?::UBIGINT AS engine, ?::BIGINT AS ts, "
            "event_kind(?) AS kind, 0 AS seq, 0 AS step",
            [engine, self.now, kind],
        )

    def _insert(self, row: dict[str, Any]) -> None:
        self.now += NS
        (row,) = checked([row | {"ts": self.now}])
        names = ", ".join(f"${name} AS {name}" for name in row)
        self._connection.execute(f"INSERT INTO findings BY NAME SELECT {names}", row)


def body(sentence: str, **document: Any) -> str:
    return json.dumps({"sentence": sentence} | document)


def notices(log: StoredFindings, news: News | None = None) -> list[Notice]:
    return (news or News(level=Severity.info)).read(log, log.now)


def notice_of(event: str = "opened", **columns: Any) -> Notice:
    """Returns what one stored change is told as."""
    log, news = StoredFindings(), News(level=Severity.info)
    if event not in ("opened", "open"):
        log.change("opened", **{k: v for k, v in columns.items() if k in ("finding", "rule")})
    notices(log, news)
    if event != "open":
        log.change(event, **columns)
    (notice,) = notices(log, news)
    return notice
