"""What happened, in order: the moments of a finding that the log or its chain gives a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from diagnose.accounting import Accounting
from diagnose.diagnosis import EngineDiagnosis
from diagnose.finding import Finding
from diagnose.reading import NS, QueryLog, Scope, read_row, read_rows
from diagnose.text.finding_text import PREEMPTION_RULES
from diagnose.words import count, harmless, plural, time_of_day, utc
from telemetry.step_facts import read_step
from telemetry.step_headline import headline

MAX_EVENTS = 8
"""Events of the engine that are told; the rest is counted."""
MANY_TIMES = 2
"""From so many evictions on, the request hit hardest has a line of its own."""

LIVES_SQL = """
SELECT min(ts) AS first_ts, max(ts) AS last_ts, count(*) AS num_arrived,
       (SELECT max(ts) FROM request_finishes WHERE {where}) AS ended_ts,
       (SELECT count(*) FROM request_finishes WHERE {where}) AS num_ended
FROM request_arrivals WHERE {where}
"""

EVENTS_SQL = """
SELECT ts, event_kind_name(kind) AS kind, step, text, count(*) OVER () AS num_all
FROM request_events
WHERE {where} AND kind IN (
  event_kind('engine_started'), event_kind('config_changed'), event_kind('prefix_cache_reset'),
  event_kind('paused'), event_kind('unpaused'), event_kind('engine_failed'),
  event_kind('engine_died'), event_kind('engine_stopped'), event_kind('records_dropped')
)
ORDER BY ts
"""

EVICTIONS_SQL = """
SELECT step::BIGINT AS step, min(ts) AS ts, count(*) AS num_evicted
FROM preemptions WHERE {where} GROUP BY step ORDER BY step
"""

HARDEST_SQL = """
SELECT request, count(*) AS times, min(ts) AS first_ts, max(ts) AS last_ts
FROM preemptions WHERE {where} GROUP BY request ORDER BY times DESC, request LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened at a time; `until_ts` where it lasted."""

    ts: int
    sentence: str
    until_ts: int | None = None

    def time(self, *, with_day: bool) -> str:
        """Returns `11:55:18.873`, or from when to when."""
        first = _clock(self.ts, with_day=with_day)
        if self.until_ts is None:
            return first
        return f"{first} to {time_of_day(self.until_ts, 3)}"


def _clock(ts: int, *, with_day: bool) -> str:
    day = f"{utc(ts):%Y-%m-%d} " if with_day else ""
    return day + time_of_day(ts, 3)


def moments_of(log: QueryLog, engine: EngineDiagnosis, finding: Finding) -> list[Moment]:
    """Returns what happened around a finding, in order, each moment once."""
    chain = [Moment(link.ts, link.sentence) for link in finding.chain if link.ts is not None]
    opened = Moment(finding.span.opened_ts, f"opened: {finding.symptom}")
    told = chain or [opened]
    if engine.metrics is None:
        evicted: list[Moment] = []
        if finding.rule in PREEMPTION_RULES:
            evicted = list(_evictions(log, finding, engine.accounting, has_chain=bool(chain)))
        told = [*_lives(log, engine), *_events(log, engine.scope), *(chain or evicted or told)]
        told += evicted
    if finding.span.cleared_ts is not None:
        told.append(Moment(finding.span.cleared_ts, "cleared"))
    return sorted(dict.fromkeys(told), key=lambda moment: moment.ts)


def _lives(log: QueryLog, engine: EngineDiagnosis) -> Iterator[Moment]:
    row = read_row(log, engine.scope.fill(LIVES_SQL))
    if row["first_ts"] is not None:
        yield Moment(row["first_ts"], "first request of this window")
        if row["num_arrived"] > 1:
            arrived = plural(row["num_arrived"], "request")
            yield Moment(row["last_ts"], f"last arrival; {arrived} in all")
    if row["ended_ts"] is not None:
        yield Moment(row["ended_ts"], _end(engine, row))


def _end(engine: EngineDiagnosis, row: dict[str, Any]) -> str:
    free, pool = engine.steps.last_free_blocks, engine.settings.num_usable_blocks
    ended = f"last end of a request; {row['num_ended']:,} in all"
    if engine.steps.last_running or engine.steps.last_waiting or free is None:
        return ended
    return f"{ended}, {count(free)} of {count(pool)} KV blocks free"


def _events(log: QueryLog, scope: Scope) -> Iterator[Moment]:
    rows = read_rows(log, scope.fill(EVENTS_SQL))
    for row in rows[:MAX_EVENTS]:
        text = f": {harmless(row['text'], 80)}" if row["text"] else ""
        yield Moment(row["ts"], str(row["kind"]).replace("_", " ") + text)
    if len(rows) > MAX_EVENTS:
        more = plural(len(rows) - MAX_EVENTS, "more event")
        yield Moment(rows[MAX_EVENTS]["ts"], f"from here on {more} of the engine")


def _evictions(
    log: QueryLog, finding: Finding, account: Accounting, *, has_chain: bool
) -> Iterator[Moment]:
    end = finding.span.cleared_ts or account.scope.end_ts
    scope = Scope(finding.engine, finding.span.opened_ts, end)
    steps = read_rows(log, scope.fill(EVICTIONS_SQL))
    if not steps:
        return
    if not has_chain:
        yield Moment(steps[0]["ts"], _step_sentence(log, finding.engine, steps[0]))
    worst = max(steps, key=lambda row: row["num_evicted"])
    if worst["step"] != steps[0]["step"]:
        evicted = plural(worst["num_evicted"], "request")
        said = f"the most in one step: {evicted} evicted (step {worst['step']:,})"
        yield Moment(worst["ts"], said)
    yield from _hardest(log, scope)
    total = sum(row["num_evicted"] for row in steps)
    last = f"last preemption; {total:,} in {plural(len(steps), 'step')}"
    yield Moment(steps[-1]["ts"], last)


def _step_sentence(log: QueryLog, engine: int, row: dict[str, Any]) -> str:
    """Returns the arithmetic of a step, as its own page would say it."""
    facts = read_step(log, row["step"], engine)
    said = f"{plural(row['num_evicted'], 'request')} evicted" if facts is None else headline(facts)
    return f"{said.rstrip('.')} (step {row['step']:,})"


def _hardest(log: QueryLog, scope: Scope) -> Iterator[Moment]:
    rows = read_rows(log, scope.fill(HARDEST_SQL))
    if rows and rows[0]["times"] >= MANY_TIMES:
        row = rows[0]
        times = plural(row["times"], "time")
        yield Moment(row["first_ts"], f"request {row['request']} evicted {times}", row["last_ts"])


def spans_days(moments: list[Moment]) -> bool:
    """Returns whether the moments are not all of one day, so that each needs its date."""
    days = {moment.ts // (86_400 * NS) for moment in moments}
    return len(days) > 1
