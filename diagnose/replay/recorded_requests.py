"""The requests of a recorded stretch, with what befell each of them outside the scheduler."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from diagnose.reading import QueryLog, Scope, read_rows
from diagnose.replay.recorded_texts import NAMED
from diagnose.replay.rows import Row
from diagnose.replay.workload import Answer, Transfers, WorkRequest
from engine.config import EngineConfig
from engine.encoder_cache import EncoderItem
from engine.scheduler.load_journal import ENCODER_CONNECTOR
from telemetry.vocabulary import EventKind, FinishReason, SkipReason

_ABORTS = (FinishReason.abort_client, FinishReason.abort_api, FinishReason.abort_timeout)

_ON_THE_WAY = 0.05
"""This share of the requests waited for nothing between their receipt and the scheduler."""

_EDGE = 0.1
"""This share of a step is its edge. Who is taken in so soon behind a step came while it ran."""

_REQUESTS = """
SELECT a.request, a.request_id, a.ts, a.arrival_time, a.num_prompt_tokens, a.max_tokens,
  a.priority, a.adapter, a.salt_key, a.reads_cache, a.grammar_key, a."session" IS NOT NULL
    AS is_session, a.reason AS blocked_by, a.item_keys, a.item_positions, a.item_embeds,
  a.prefix_request, a.num_shared_tokens, f.ts AS finished_ts, f.reason, f.num_output_tokens,
  f.drafts_placed, f.drafts_accepted, s.ts AS step_ts, s.updated_ts AS step_end_ts
FROM request_arrivals a
ASOF LEFT JOIN (
  SELECT ts, CASE WHEN num_scheduled_tokens > 0 THEN updated_ts END AS updated_ts
  FROM steps WHERE {where}
) s ON s.ts <= a.ts
LEFT JOIN request_finishes f ON f.engine = a.engine AND f.request = a.request
WHERE a.engine = {engine} AND a.ts <= {end} AND (f.ts IS NULL OR f.ts >= {start})
  AND a.num_steps_in_flight IS NOT NULL
ORDER BY a.ts, a.seq
"""
_EVENT_KINDS = (
    *(EventKind.unblocked, EventKind.grammar_ready, EventKind.grammar_failed),
    *(EventKind.lookup_pending, EventKind.lookup_answered, EventKind.load_started),
    *(EventKind.load_finished, EventKind.load_failed, EventKind.load_timed_out),
    *(EventKind.ack_wait_started, EventKind.ack_received, EventKind.lease_expired),
    *(EventKind.save_started, EventKind.save_finished, EventKind.preempted),
)
_EVENTS = f"""
WITH told AS (
  SELECT seq, request, kind, step, ts, connector, is_async, num_tokens, num_hit_tokens
  FROM request_events WHERE {{where}} AND request IS NOT NULL
    AND kind IN ({", ".join(str(int(kind)) for kind in _EVENT_KINDS)})
), taken_in AS (
  SELECT step, CASE WHEN num_scheduled_tokens > 0 THEN updated_ts - ts ELSE 0 END AS step_ns
  FROM steps WHERE {{where}}
)
SELECT t.*, min(t.ts) OVER (PARTITION BY t.step, t.kind) AS together_ts,
  greatest(0, coalesce(s.step_ns, 0)) AS step_ns
FROM told t ASOF LEFT JOIN taken_in s ON s.step <= t.step
ORDER BY t.seq
"""
"""`together_ts` is equal for what a step did at one go; `step_ns` is how long it computed."""
# Steps in which a request may have been given an output, up to a moment: those since its first one,
# but for the time that it was out.
_PROGRESS = """
WITH first AS (
  SELECT request, min(ts) AS first_ts FROM request_events
  WHERE engine = {engine} AND kind = {first_token} AND ts < {until} GROUP BY request
), kept AS (
  SELECT request, arg_max(num_output_tokens_kept, seq) AS num_kept, arg_max(ts, seq) AS out_ts,
    max(seq) AS out_seq
  FROM request_events WHERE engine = {engine} AND kind = {preempted} AND ts < {until}
  GROUP BY request
), back AS (
  SELECT e.request, min(e.ts) AS back_ts FROM request_events e JOIN kept k
    ON k.request = e.request AND e.seq > k.out_seq
  WHERE e.engine = {engine} AND e.kind = {caught_up} AND e.ts < {until} GROUP BY e.request
), taken AS (
  SELECT request, bool_or(TRUE) AS was_admitted FROM request_events
  WHERE engine = {engine} AND kind IN ({admitted}, {resumed}) AND ts < {until} GROUP BY request
), returned AS (
  SELECT e.request FROM request_events e JOIN kept k ON k.request = e.request AND e.seq > k.out_seq
  WHERE e.engine = {engine} AND e.kind = {resumed} AND e.ts < {until} GROUP BY e.request
), counted AS (
  SELECT f.request, coalesce(k.num_kept, 0)::BIGINT AS num_kept,
    CASE WHEN k.request IS NULL THEN f.first_ts ELSE b.back_ts END AS since
  FROM first f LEFT JOIN kept k USING (request) LEFT JOIN back b USING (request)
)
SELECT t.request, coalesce(c.num_kept, 0) AS num_kept, c.since,
  k.request IS NULL OR r.request IS NOT NULL AS was_running
FROM taken t LEFT JOIN counted c USING (request) LEFT JOIN kept k USING (request)
  LEFT JOIN returned r USING (request)
WHERE t.request IN ({requests})
"""
_STEP_ENDS = """
SELECT coalesce(updated_ts, ts) AS ts FROM steps
WHERE engine = {engine} AND ts < {until} AND coalesce(updated_ts, ts) >= {since}
  AND num_scheduled_tokens > 0 ORDER BY 1
"""


def read_requests(
    log: QueryLog, scope: Scope, config: EngineConfig, step_ns: int
) -> tuple[list[WorkRequest], int]:
    """Returns the requests of a stretch by arrival, and how many streaming sessions are left out.

    Those in flight when the stretch begins come first: who ran, then who waited. `step_ns` is how
    long a step takes.
    """
    rows = read_rows(log, scope.fill(_REQUESTS))
    sessions = sum(row["is_session"] for row in rows)
    rows = [row for row in rows if not row["is_session"]]
    told = _events_of(log, scope)
    early = [row["request"] for row in rows if row["ts"] < scope.start_ts]
    before = _progress(log, scope.engine, early, scope.start_ts)
    open_ones = [row["request"] for row in rows if row["finished_ts"] is None]
    after = _progress(log, scope.engine, open_ones, scope.end_ts + 1)
    works = [
        _work_of(row, scope, told.get(row["request"], []), before, after, config) for row in rows
    ]
    works = _before_the_wait_for_a_step(works, rows, scope.start_ts, step_ns)
    works.sort(key=lambda work: (work.arrived_ns >= 0, not work.was_running, work.arrived_ns))
    return works, sessions


def _before_the_wait_for_a_step(
    works: list[WorkRequest], rows: list[Row], start_ts: int, step_ns: int
) -> list[WorkRequest]:
    """Returns the requests with arrivals as they would be if no step had been under way.

    A request is taken in between two steps. What it waited for that beyond the time that all take
    on their way is no part of when it came: a replay has steps of its own, and makes it wait again.
    One that came while a step computed something is let come clearly within it, so that a replay
    whose steps are a little longer or shorter takes it in behind the same one.
    """
    late = [work.received_before_ns for work in works if work.received_before_ns > 0]
    usual = int(np.quantile(late, _ON_THE_WAY)) if late else 0
    moved = []
    for work, row in zip(works, rows, strict=True):
        waited = min(max(0, work.received_before_ns - usual), step_ns)
        if 0 <= waited <= work.arrived_ns:
            came = work.arrived_ns - waited
            work = replace(
                work,
                arrived_ns=came,
                received_before_ns=work.received_before_ns - waited,
                off_edge_ns=_within(came, row, start_ts) - came,
            )
        moved.append(work)
    return moved


def _within(came_ns: int, row: Row, start_ts: int) -> int:
    """Returns when a request came, not at the edge of the step behind which it was taken in."""
    if row["step_end_ts"] is None or row["step_end_ts"] > row["ts"]:
        return came_ns
    begin: int = row["step_ts"] - start_ts
    end: int = row["step_end_ts"] - start_ts
    edge = int((end - begin) * _EDGE)
    if row["ts"] - row["step_end_ts"] > edge or begin < 0:
        return came_ns
    return min(max(came_ns, begin + edge), end - edge)


def _work_of(
    row: Row,
    scope: Scope,
    events: list[Row],
    before: dict[int, tuple[int, bool]],
    after: dict[int, tuple[int, bool]],
    config: EngineConfig,
) -> WorkRequest:
    number: int = row["request"]
    reason = row["reason"]
    is_finished = row["finished_ts"] is not None and row["finished_ts"] <= scope.end_ts
    is_aborted = is_finished and reason in _ABORTS
    num_before, was_running = before.get(number, (0, False))
    received = row["arrival_time"]
    lateness = 0 if received is None else row["ts"] - int(received * 1e9)
    return WorkRequest(
        number=number,
        request_id=row["request_id"],
        arrived_ns=row["ts"] - scope.start_ts,
        num_prompt_tokens=row["num_prompt_tokens"],
        num_output_tokens=_num_outputs(row, is_aborted, after.get(number, (0, False))[0], config),
        is_finished=is_finished,
        priority=row["priority"] or 0,
        received_before_ns=lateness if 0 <= lateness < 60_000_000_000 else 0,
        adapter=row["adapter"],
        salt_key=row["salt_key"],
        reads_cache=row["reads_cache"] is not False,
        prefix_request=row["prefix_request"],
        num_shared_tokens=row["num_shared_tokens"] or 0,
        aborted_after_ns=row["finished_ts"] - row["ts"] if is_aborted else None,
        blocked_ns=_blocked_ns(row, events),
        transfers=_transfers_of(events),
        drafts_placed=tuple(row["drafts_placed"] or ()),
        drafts_accepted=tuple(row["drafts_accepted"] or ()),
        encoder_items=_items(row),
        num_outputs_before=num_before,
        was_running=was_running,
    )


def _num_outputs(row: Row, is_aborted: bool, num_so_far: int, config: EngineConfig) -> int:
    """Returns when a request ends; where the record does not say, what it may have at most."""
    room = max(1, config.scheduler.max_model_len - row["num_prompt_tokens"])
    limit: int = min(row["max_tokens"] or room, room)
    if row["finished_ts"] is None:
        return max(limit, num_so_far)
    num_outputs: int = row["num_output_tokens"]
    return max(limit, num_outputs) if is_aborted else max(1, num_outputs)


def _items(row: Row) -> tuple[EncoderItem, ...]:
    if row["item_keys"] is None:
        return ()
    columns = (row["item_keys"].split(" "), row["item_positions"], row["item_embeds"])
    return tuple(EncoderItem(*item) for item in zip(*columns, strict=True))


# ------------------------------------------------------------------------------- what befell it


def _events_of(log: QueryLog, scope: Scope) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in read_rows(log, scope.fill(_EVENTS)):
        if row["connector"] != ENCODER_CONNECTOR:
            found[row["request"]].append(row)
    return found


def _blocked_ns(row: Row, events: list[Row]) -> int:
    """Returns how long a request waited for its grammar; those that failed never ran."""
    if row["blocked_by"] != SkipReason.grammar_compiling:
        return 0
    ready = (EventKind.unblocked, EventKind.grammar_ready, EventKind.grammar_failed)
    ends = [event["ts"] for event in events if event["kind"] in ready]
    return max(0, ends[0] - row["ts"]) if ends else 0


def _transfers_of(events: list[Row]) -> Transfers:
    """Returns what a connector did for one request.

    That a transfer has ended is told by the next step; on the whole it ended in the middle of it.
    """
    asked = answered = started = acked = saving = None
    num_preemptions, ack_ns = 0, None
    answers: list[Answer] = []
    load_ns: list[int | None] = []
    save_ns: list[int] = []
    for event in events:
        match event["kind"]:
            case EventKind.lookup_pending:
                asked = event["ts"] if asked is None else asked
            case EventKind.lookup_answered:
                answered = event["ts"] if answered is None else answered
                num_tokens = event["num_tokens"]
                reach = event["num_hit_tokens"] + num_tokens if num_tokens else 0
                is_async = bool(event["is_async"])
                answers.append(
                    Answer(num_preemptions=num_preemptions, reach=reach, is_async=is_async)
                )
            case EventKind.preempted:
                num_preemptions += 1
            case EventKind.load_started:
                started = event["together_ts"]
            case EventKind.load_finished if started is not None:
                load_ns.append(_ended(event) - started)
                started = None
            case EventKind.load_failed | EventKind.load_timed_out if started is not None:
                load_ns.append(None)
                started = None
            case EventKind.save_started:
                saving = event["together_ts"]
            case EventKind.save_finished if saving is not None:
                save_ns.append(max(0, _ended(event) - saving))
                saving = None
            case EventKind.ack_wait_started:
                acked = event["ts"]
            case EventKind.ack_received | EventKind.lease_expired if acked is not None:
                ack_ns = max(0, _ended(event) - acked)
    waited = answered - asked if asked is not None and answered is not None else 0
    return Transfers(
        answers=tuple(answers),
        lookup_ns=max(0, waited),
        load_ns=tuple(load_ns),
        ack_ns=ack_ns,
        save_ns=tuple(save_ns),
    )


def _ended(event: Row) -> int:
    ended: int = event["together_ts"] - event["step_ns"] // 2
    return ended


def _progress(
    log: QueryLog, engine: int, requests: list[int], until: int
) -> dict[int, tuple[int, bool]]:
    """Returns, by request, its outputs up to a moment, and whether it ran then.

    The log of steps says how many there were while it ran; each gave it one.
    """
    if not requests:
        return {}
    kinds = {
        name: int(EventKind[name])
        for name in ("first_token", "preempted", "caught_up", "admitted", "resumed")
    }
    rows = []
    for begin in range(0, len(requests), NAMED):
        named = ", ".join(map(str, requests[begin : begin + NAMED]))
        sql = _PROGRESS.format(engine=engine, until=until, requests=named, **kinds)
        rows += read_rows(log, sql)
    since = min((row["since"] for row in rows if row["since"] is not None), default=None)
    ends: Any = np.zeros(0, dtype=np.int64)
    if since is not None:
        filled = _STEP_ENDS.format(engine=engine, until=until, since=since)
        ends = log.query(filled).column("ts").to_numpy()
    progress = {}
    for row in rows:
        num_outputs = row["num_kept"]
        if row["since"] is not None:
            num_outputs += int(len(ends) - np.searchsorted(ends, row["since"]))
        progress[row["request"]] = (num_outputs, bool(row["was_running"]))
    return progress
