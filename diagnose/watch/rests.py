"""Engines that have nothing to do, and that work again, as lines between the findings.

An engine rests once it has had nothing to do for a while: one that gets a request every few seconds
works. The line has the moment at which it came to rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from diagnose.reading import NS, QueryLog, read_rows
from diagnose.text.lines import Report
from diagnose.words import count, engine_hex, plural, time_of_day

REST_NS = 10 * NS
"""How long it has nothing to do before that is told."""

_BEATS = """
SELECT engine, arg_max(ts, ts) AS ts, arg_max(phase = phase('idle'), ts) AS is_idle,
  arg_max(ts - phase_age_ns, ts) AS since_ts
FROM heartbeats WHERE ts > {since} AND phase IS NOT NULL AND engine IN ({engines})
GROUP BY engine ORDER BY engine
"""
_NEWEST_STEP = """
SELECT s.num_running, s.num_waiting,
  s.num_blocks_free_unhashed::BIGINT + s.num_blocks_free_cached AS num_free, e.num_usable_blocks
FROM steps s LEFT JOIN engines e USING (engine)
WHERE s.engine = {engine}::UBIGINT AND s.ts > {since} ORDER BY s.step DESC LIMIT 1
"""
_FINISHED = """
SELECT count(*) AS num FROM request_finishes
WHERE engine = {engine}::UBIGINT AND ts > {since}
"""
_LATEST_NS = 900 * NS
"""How far back the newest step is looked for."""


@dataclass(slots=True)
class Rests:
    """Which engines were told as resting; `None`: not told yet, which of the two it is."""

    resting: dict[int, bool] = field(default_factory=dict)
    _since_ts: dict[int, int] = field(default_factory=dict)
    """From when on finished requests of a working engine are counted."""

    def write(
        self, report: Report, log: QueryLog, engines: Iterable[int], since: int, *, names: bool
    ) -> None:
        """Adds a line for each of the engines that came to rest, or works again.

        Args:
            report: takes the lines.
            log: the log.
            engines: those that live.
            since: beats older than this moment say nothing.
            names: whether a line names its engine.
        """
        listed = ", ".join(f"{engine}::UBIGINT" for engine in sorted(engines))
        if not listed:
            return
        for beat in read_rows(log, _BEATS.format(since=since, engines=listed)):
            engine, ts = beat["engine"], beat["ts"]
            since_ts = ts if beat["since_ts"] is None else beat["since_ts"]
            is_resting = beat["is_idle"] and ts - since_ts >= REST_NS
            before = self.resting.get(engine)
            if before is is_resting:
                continue
            self.resting[engine] = is_resting
            lead = f"engine {engine_hex(engine)[:8]}  " if names else ""
            if is_resting:
                facts = self._at_rest(log, engine, since_ts)
                report.add(f"{time_of_day(since_ts)}  ", ("● idle      ", "flag"), lead + facts)
            else:
                facts = self._at_work(log, engine, ts, is_first=before is None)
                report.add(f"{time_of_day(ts)}  ", ("● live      ", "flag"), lead + facts)

    def _at_rest(self, log: QueryLog, engine: int, rested_ts: int) -> str:
        """Returns what an engine has done since it was told as working, and what it holds."""
        facts = []
        if engine in self._since_ts:
            sql = _FINISHED.format(engine=engine, since=self._since_ts.pop(engine))
            facts.append(f"{plural(read_rows(log, sql)[0]['num'], 'request')} finished")
        step = _newest_step(log, engine, rested_ts)
        if step is not None and step["num_free"] is not None:
            pool = step["num_usable_blocks"]
            of = "" if pool is None else f" of {count(pool)}"
            facts.append(f"{count(step['num_free'])}{of} blocks free")
        return ", ".join(facts) or "nothing to do"

    def _at_work(self, log: QueryLog, engine: int, ts: int, *, is_first: bool) -> str:
        """Returns what an engine has in hand."""
        self._since_ts[engine] = ts - (0 if is_first else REST_NS)
        step = _newest_step(log, engine, ts)
        if step is None:
            return "at work"
        running, waiting = count(step["num_running"]), count(step["num_waiting"])
        return f"{running} running, {waiting} waiting"


def _newest_step(log: QueryLog, engine: int, ts: int) -> dict[str, Any] | None:
    rows = read_rows(log, _NEWEST_STEP.format(engine=engine, since=ts - _LATEST_NS))
    return rows[0] if rows else None
