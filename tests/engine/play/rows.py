"""What a run decided and recorded, in a form in which two runs can be compared."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from engine.scheduler import SchedulerOutput
from telemetry.records import Event, StepRow
from telemetry.vocabulary import EventKind

if TYPE_CHECKING:
    from tests.engine.play.player import Player


def decisions(output: SchedulerOutput) -> dict[str, Any]:
    """Returns everything that an output says, as plain data."""
    return {
        "step": output.step,
        "new": [
            (d.request_id, list(d.prompt_token_ids), list(d.block_ids), d.num_computed_tokens)
            for d in output.scheduled_new_reqs
        ],
        "cached": [
            (
                d.request_id,
                None if d.new_block_ids is None else list(d.new_block_ids),
                d.num_computed_tokens,
                d.num_output_tokens,
                d.resumed,
                None if d.all_token_ids is None else list(d.all_token_ids),
            )
            for d in output.scheduled_cached_reqs
        ],
        "tokens": list(output.num_scheduled_tokens.items()),
        "total": output.total_num_scheduled_tokens,
        "drafts": list(output.scheduled_spec_decode_tokens.items()),
        "encoder": list(output.scheduled_encoder_inputs.items()),
        "encoder_freed": list(output.free_encoder_mm_hashes),
        "finished": sorted(output.finished_req_ids),
        "preempted": sorted(output.preempted_req_ids),
        "preempted_in_order": list(output.preempted_in_order),
        "external": list(output.num_external_tokens.items()),
        "loads": list(output.kv_loads_started.items()),
        "hits": list(output.num_prefix_hit_tokens.items()),
    }


def rows_of(play: Player) -> list[dict[str, Any]]:
    """Returns what was recorded, without times and without keys that are salted anew each run."""
    recorder = play.recorder
    dense = [
        {"step": step} | {f.name: _listed(getattr(rows, f.name)) for f in fields(rows)}
        for step, rows in recorder.step_requests
    ]
    return [_untimed(row) for row in [*recorder.steps, *recorder.events]] + dense


def _listed(column: npt.NDArray[Any] | None) -> list[int] | None:
    return None if column is None else column.tolist()


def _untimed(row: StepRow | Event) -> dict[str, Any]:
    is_salted = row.__class__ is Event and row.kind == EventKind.item_evicted
    return {
        name: value
        for name, value in asdict(row).items()
        if not name.endswith(("ts", "_ns", "_key", "_keys", "_hashes"))
        and not (is_salted and name == "text")
    } | {"type": type(row).__name__}
