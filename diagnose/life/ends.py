"""How the record of an engine ended: what is open then neither goes on nor clears."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from diagnose.reading import QueryLog, read_rows

OVER = ("cleared", "ended")
"""Statuses in which a finding is not open."""
RECORD_ENDED = "record_ended"
"""How it ended where the log does not say how its engine did: nobody writes it any more."""

_ENDS = """
SELECT engine, event_kind_name(arg_max(kind, ts)) AS kind, max(ts) AS ts FROM request_events
WHERE engine IN ({engines}) AND kind IN (
  event_kind('engine_stopped'), event_kind('engine_died'), event_kind('engine_failed'))
GROUP BY engine
"""
_NEWEST = "SELECT engine, newest_ts AS ts FROM log_ends WHERE engine IN ({engines})"


@dataclass(frozen=True, slots=True)
class End:
    """An end. `kind` is an event of the engine, or `RECORD_ENDED`; `ts` is `None` where unknown."""

    kind: str
    ts: int | None

    def __str__(self) -> str:
        return end_words(self.kind)


def end_words(kind: str | None) -> str:
    """Returns an end in words: `engine died`."""
    return (kind or RECORD_ENDED).replace("_", " ")


def read_ends(log: QueryLog, engines: Iterable[int], *, is_closed: bool = False) -> dict[int, End]:
    """Returns how each of some engines ended; nothing of those that go on.

    Args:
        log: the log.
        engines: the engines.
        is_closed: nobody writes the log any more, so that the record of all of them has ended.
    """
    asked = set(engines)
    if not asked:
        return {}
    listed = ", ".join(f"{engine}::UBIGINT" for engine in sorted(asked))
    rows = read_rows(log, _ENDS.format(engines=listed))
    ends = {row["engine"]: End(row["kind"], row["ts"]) for row in rows}
    if not is_closed or not asked - set(ends):
        return ends
    newest = {row["engine"]: row["ts"] for row in read_rows(log, _NEWEST.format(engines=listed))}
    return {engine: End(RECORD_ENDED, newest.get(engine)) for engine in asked} | ends
