"""Engines that come and go, rest and work, as lines between the findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from diagnose.reading import NS, QueryLog, read_rows
from diagnose.text.lines import WIDTH, Report
from diagnose.watch.rests import Rests
from diagnose.words import count, engine_hex, harmless, time_of_day

SEEN_NS = 15 * NS
LOADING_NS = 300 * NS
"""How long an engine that loads its model is not told yet: its KV blocks are not known."""
_LIVING = """
SELECT engine, e.started_ts, e.model, e.source, e.version, e.num_usable_blocks, e.block_size,
  e.max_num_seqs
FROM engines e WHERE engine IN (SELECT engine FROM heartbeats WHERE ts > {since})
  AND (e.num_usable_blocks IS NOT NULL OR e.started_ts < {loaded})
ORDER BY e.started_ts
"""
_ENDED = """
SELECT engine, ts, event_kind_name(kind) AS kind FROM request_events
WHERE ts > {since} AND kind IN (
  event_kind('engine_stopped'), event_kind('engine_died'), event_kind('engine_failed'))
ORDER BY ts
"""


@dataclass(slots=True)
class Engines:
    """Which engines were told as attached, and which as ended: once each, as an id is one start."""

    attached: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    rests: Rests = field(default_factory=Rests)

    def write(self, report: Report, log: QueryLog, now: int) -> None:
        """Adds a line for each engine that is new, that has ended, came to rest, or works again."""
        since = now - SEEN_NS
        for row in read_rows(log, _LIVING.format(since=since, loaded=now - LOADING_NS)):
            if row["engine"] not in self.attached:
                self.attached.add(row["engine"])
                lead = f"{time_of_day(row['started_ts'] or now)}  ● attached  "
                report.add(lead, harmless("".join(_facts(row)), WIDTH - len(lead)))
        for row in read_rows(log, _ENDED.format(since=since)):
            if row["engine"] in self.attached - self.ended:
                self.ended.add(row["engine"])
                word = str(row["kind"]).removeprefix("engine_")
                engine = engine_hex(row["engine"])
                report.add(f"{time_of_day(row['ts'])}  ", f"● {word:<8}  engine {engine}")
        living = self.attached - self.ended
        self.rests.write(report, log, living, since, names=len(self.attached) > 1)


def _facts(row: dict[str, object]) -> Iterator[str]:
    """Yields what is known of an engine, for one line."""
    yield f"engine {engine_hex(int(str(row['engine'])))}"
    names = [row["model"], row["source"], row["version"]]
    yield "  " + " ".join(harmless(str(name), 24) for name in names if name is not None)
    if isinstance(row["num_usable_blocks"], int):
        yield f", {count(row['num_usable_blocks'])} KV blocks"
    if isinstance(row["max_num_seqs"], int):
        yield f", {count(row['max_num_seqs'])} slots"
