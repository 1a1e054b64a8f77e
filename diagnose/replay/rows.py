"""The rows of one engine that a replay is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagnose.reading import QueryLog, read_rows
from telemetry.vocabulary import EventKind

Row = dict[str, Any]

_INPUT_KINDS = (
    *(EventKind.arrived, EventKind.input_added, EventKind.finished, EventKind.turn_finished),
    *(EventKind.tokens_appended, EventKind.drafts_proposed, EventKind.drafts_verified),
    *(EventKind.unblocked, EventKind.grammar_ready, EventKind.grammar_failed),
    *(EventKind.lookup_pending, EventKind.lookup_answered, EventKind.ack_wait_started),
    *(EventKind.load_started, EventKind.load_finished, EventKind.load_failed),
    *(EventKind.load_timed_out, EventKind.ack_received, EventKind.lease_expired),
    *(EventKind.paused, EventKind.unpaused, EventKind.preempted),
    *(EventKind.prefix_cache_reset, EventKind.encoder_cache_reset),
)
_EVENT_COLUMNS = (
    "seq, step, ts, kind, request, reason, text, num_steps_in_flight, cause, connector, is_async, "
    "num_tokens, num_hit_tokens, invalid_blocks, draft_requests, draft_counts"
)
_STEP_COLUMNS = "step, num_repeats, num_steps_in_flight, throttled, updated_ts IS NULL AS is_open"


class ReplayError(ValueError):
    """A log does not hold what a replay needs; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """Rows of an engine, each table in the order of `seq` (steps: of `step`).

    `arrivals` and `finishes` are those of requests that reached the scheduler.
    """

    settings: str
    arrivals: list[Row]
    inputs: list[Row]
    finishes: list[Row]
    events: list[Row]
    steps: list[Row]


def read_run(log: QueryLog, engine: int) -> RunRows:
    """Returns the rows of one engine.

    Raises:
        ReplayError: the log lacks the engine's settings, or some of its steps.
    """
    where = f"WHERE engine = {engine}"
    engines = read_rows(log, f"SELECT settings FROM engines {where}")
    if not engines or engines[0]["settings"] is None:
        raise ReplayError(
            f"the log does not say how engine {engine:016x} was set up: "
            "a replay needs engines.settings"
        )
    scheduled = f"{where} AND num_steps_in_flight IS NOT NULL"
    arrivals = read_rows(log, f"FROM request_arrivals {scheduled} ORDER BY seq")
    known = {row["request"] for row in arrivals}
    finishes = read_rows(log, f"FROM request_finishes {where} ORDER BY seq")
    kinds = ", ".join(str(int(kind)) for kind in _INPUT_KINDS)
    events = read_rows(
        log,
        f"SELECT {_EVENT_COLUMNS} FROM request_events {where} AND kind IN ({kinds}) ORDER BY seq",
    )
    steps = read_rows(log, f"SELECT {_STEP_COLUMNS} FROM steps {where} ORDER BY step")
    _check_complete(steps)
    return RunRows(
        settings=engines[0]["settings"],
        arrivals=arrivals,
        inputs=read_rows(log, f"FROM session_inputs {where} ORDER BY seq"),
        finishes=[row for row in finishes if row["request"] in known],
        events=[row for row in events if row["request"] is None or row["request"] in known],
        steps=steps,
    )


def _check_complete(steps: list[Row]) -> None:
    expected = 0
    for row in steps:
        if row["step"] != expected:
            raise ReplayError(
                f"steps {expected:,} to {row['step'] - 1:,} are missing from the log: "
                "a replay needs all of them"
            )
        expected += row["num_repeats"]
