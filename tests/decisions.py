"""What a scheduler decided, and what became of a step, as plain values to compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.scheduler import RequestOutput, Scheduler, SchedulerOutput


def decisions_of(scheduler: Scheduler, output: SchedulerOutput) -> dict[str, Any]:
    """Returns all that one `schedule()` decided, and the state that it left."""
    hits, ext = output.num_prefix_hit_tokens, output.num_external_tokens
    new = [
        [data.request_id, data.num_computed_tokens, hits[data.request_id], ext[data.request_id]]
        for data in output.scheduled_new_reqs
    ]
    cached = output.scheduled_cached_reqs
    resumed = [
        [data.request_id, data.num_computed_tokens, hits[data.request_id], ext[data.request_id]]
        for data in cached
        if data.resumed
    ]
    blocks = [[data.request_id, list(data.block_ids)] for data in output.scheduled_new_reqs]
    for wanted in (False, True):
        blocks += [
            [data.request_id, list(data.new_block_ids)]
            for data in cached
            if data.resumed is wanted and data.new_block_ids is not None
        ]
    seen = {
        "new": new,
        "resumed": resumed,
        "n": [list(item) for item in output.num_scheduled_tokens.items()],
        "total": output.total_num_scheduled_tokens,
        "blocks": blocks,
        "spec": [list(item) for item in output.scheduled_spec_decode_tokens.items()],
        "finished_ids": sorted(output.finished_req_ids),
        "preempted": list(output.preempted_in_order),
        "preempted_reported": sorted(output.preempted_req_ids),
        "load_started": sorted(
            [name, *started] for name, started in output.kv_loads_started.items()
        ),
        "enc": [list(item) for item in output.scheduled_encoder_inputs.items()],
        "enc_freed": list(output.free_encoder_mm_hashes),
        **state_of(scheduler),
    }
    cache = scheduler.encoder_cache
    if cache is not None:
        seen["enc_slots"] = [cache.num_free, cache.num_reclaimable]
    return seen


def effects_of(
    scheduler: Scheduler, sampled: Mapping[str, list[int]], results: Iterable[RequestOutput]
) -> dict[str, Any]:
    """Returns what an update did with a step's tokens, and the state that it left.

    Takes the scheduler's statistics since the last call.
    """
    results = list(results)
    kept = {result.request_id: len(result.new_token_ids) for result in results}
    seen = {
        "finished": [
            [result.request_id, result.finish_reason.name]
            for result in results
            if result.finish_reason is not None
        ],
        "emitted": {
            name: kept[name]
            for name, tokens in sampled.items()
            if name in kept and kept[name] != len(tokens)
        },
        "dropped": [name for name in sampled if name not in kept],
        **state_of(scheduler),
    }
    stats = scheduler.take_prefix_cache_stats()
    if any(stats):
        seen["pc_stats"] = list(stats)
    drafts = scheduler.take_speculation_stats()
    if any(drafts):
        seen["spec_stats"] = list(drafts)
    return seen


def state_of(scheduler: Scheduler) -> dict[str, Any]:
    """Returns who runs and who waits, in which order, and what is free."""
    scheduler.settle()
    return {
        "running": [request.request_id for request in scheduler.running],
        "ncomp": [request.num_computed_tokens for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "kv_wait": [request.request_id for request in scheduler.kv_holding_waiting],
        "deferred": sorted(request.request_id for request in scheduler.skipped),
        "free": scheduler.kv.pool.num_free,
    }
