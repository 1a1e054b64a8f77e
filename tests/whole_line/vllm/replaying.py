"""A vLLM's record as our own scheduler understands it: replayed, step by step.

The record is complete where the scheduler's inputs can be rebuilt from it. Ours follows vLLM's
rules, so given what the log of a vLLM holds, and nothing else, it must decide the same in every
step.
"""

from __future__ import annotations

from typing import Any

from diagnose.replay import Decided, Replay, read_inputs
from telemetry.recorder import ListRecorder
from telemetry.records import StepRow
from telemetry.store import Log

COLUMNS = (
    *("num_scheduled_tokens", "num_prefill_tokens", "num_decode_tokens", "num_recomputed_tokens"),
    *("num_zero_requests", "top_request", "top_request_tokens", "num_prefix_hit_tokens"),
    *("num_running", "num_waiting", "num_skipped_waiting", "num_kv_holding_waiting"),
    *("num_blocks_free_unhashed", "num_blocks_free_cached"),
    *("num_blocks_running", "num_blocks_waiting"),
    *("num_admitted", "num_resumed", "num_preempted", "stop_reason"),
    *("head_request", "head_blocks_needed", "min_follower_blocks_needed"),
)
"""What was decided in a step, and what was left after it."""


def replayed_steps(log: Log, engine: int) -> dict[int, StepRow]:
    """Returns the rows of our scheduler's steps, by their numbers."""
    recorder = ListRecorder()
    replay = Replay(read_inputs(log, engine), recorder=recorder)
    for step in replay.run():
        if not isinstance(step, Decided):
            replay.scheduler.check_integrity()
    replay.scheduler.journal.flush()
    return {row.step + n: row for row in recorder.steps for n in range(row.num_repeats)}


def recorded_steps(log: Log, engine: int) -> dict[int, dict[str, Any]]:
    """Returns the rows of the recorded steps, by their numbers."""
    sql = f"SELECT step, num_repeats, {', '.join(COLUMNS)} FROM steps WHERE engine = {engine}"
    rows = log.query(sql).to_pylist()
    return {row["step"] + n: row for row in rows for n in range(row["num_repeats"])}


def differences(log: Log, engine: int) -> list[tuple[int, str]]:
    """Returns what our scheduler decides differently: the step, and in words what and how."""
    ours, theirs = replayed_steps(log, engine), recorded_steps(log, engine)
    found = [(step, "only one of them has it") for step in ours.keys() ^ theirs.keys()]
    for step in ours.keys() & theirs.keys():
        for name in COLUMNS:
            one, other = theirs[step][name], getattr(ours[step], name)
            if one != other:
                found.append((step, f"{name}: recorded {one}, replayed {other}"))
    return sorted(found)
