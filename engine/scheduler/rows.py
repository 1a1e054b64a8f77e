"""A decided step as rows of the record: the step's own row and its dense rows."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.scheduler.output import DecodeBatch
from engine.scheduler.plan import StepPlan
from engine.scheduler.speculation import PLACEHOLDER
from telemetry.records import StepRequests, StepRow
from telemetry.vocabulary import StopReason

if TYPE_CHECKING:
    from engine.scheduler.state import SchedulerState

NUM_FOLLOWERS = 16
"""Requests behind the head whose need of blocks is looked at."""

NO_REASON = 255

_BLOCK_STOPS = frozenset(
    {
        StopReason.kv_blocks_chunk,
        StopReason.kv_blocks_whole_prompt,
        StopReason.kv_watermark,
        StopReason.kv_reserved_for_loads,
        StopReason.loaded_needs_blocks,
    }
)


def is_same_state(row: StepRow, other: StepRow) -> bool:
    """Whether two steps that scheduled nothing can be told in one row."""
    return _state(row) == _state(other)


def _state(row: StepRow) -> tuple[int | None, ...]:
    return (
        row.stop_reason,
        row.head_request,
        row.head_blocks_needed,
        row.num_running,
        row.num_waiting,
        row.num_skipped_waiting,
        row.num_blocks_free_unhashed,
        row.num_blocks_free_cached,
    )


def step_row(plan: StepPlan, scheduler: SchedulerState) -> StepRow:
    """Returns the step's row as far as the scheduler knows it."""
    head = plan.stop.head
    row = StepRow(
        step=plan.step,
        ts=plan.started_ts,
        num_steps_in_flight=1,
        token_budget=plan.full_budget,
        num_scheduled_tokens=plan.full_budget - plan.token_budget,
        num_zero_requests=len(plan.zeros),
        num_running=len(scheduler.running),
        num_waiting=scheduler.num_waiting,
        num_skipped_waiting=len(scheduler.skipped),
        num_kv_holding_waiting=len(scheduler.kv_holding_waiting),
        num_admitted=len(plan.admitted),
        num_resumed=len(plan.resumed),
        num_preempted=len(plan.preempted),
        stop_reason=plan.stop.reason,
        head_request=None if head is None else head.number,
        head_blocks_needed=plan.stop.num_blocks_needed,
        num_prefix_hit_tokens=0,
        num_external_tokens=0,
    )
    if plan.num_hit_tokens:
        row.num_prefix_hit_tokens = sum(hit or 0 for hit in plan.num_hit_tokens.values())
        row.num_external_tokens = sum(plan.num_external_tokens.values())
    _count_blocks(row, scheduler)
    _count_loads(row, scheduler)
    if scheduler.config.scheduler.max_loras is not None:
        row.num_adapters = len(plan.adapters())
    if scheduler.encoder_cache is not None and scheduler.config.encoder is not None:
        row.encoder_budget = scheduler.config.encoder.compute_budget
        row.num_encoder_embeds = row.encoder_budget - plan.encoder_budget
        row.encoder_cache_free = scheduler.encoder_cache.num_free
        row.encoder_cache_reclaimable = scheduler.encoder_cache.num_reclaimable
    if plan.stop.reason in _BLOCK_STOPS:
        row.min_follower_blocks_needed = _min_follower_blocks(scheduler)
    _split_tokens(row, plan)
    return row


def _count_blocks(row: StepRow, scheduler: SchedulerState) -> None:
    """Counts the blocks by who has them; what nobody else has is of running requests."""
    kv, pool = scheduler.kv, scheduler.kv.pool
    waiting = finished = deferred = given_up = 0
    if row.num_kv_holding_waiting:
        waiting = sum(map(kv.num_blocks_held, scheduler.kv_holding_waiting))
    if scheduler.kept:
        finished = sum(map(kv.num_blocks_held, scheduler.kept.values()))
    if scheduler.deferred_frees:
        deferred = sum(kv.num_blocks_set_apart(ticket) for _, ticket in scheduler.deferred_frees)
    if scheduler.transfers.given_up:
        lost = scheduler.transfers.given_up.values()
        given_up = sum(kv.num_blocks_set_apart(load.ticket) for load in lost)
    busy = waiting + finished + deferred + given_up
    row.num_blocks_free_unhashed = pool.num_free - pool.num_free_cached
    row.num_blocks_free_cached = pool.num_free_cached
    row.num_blocks_running = max(0, pool.num_usable - pool.num_free - busy)
    row.num_blocks_waiting, row.num_blocks_finished = waiting, finished
    row.num_blocks_deferred_free, row.num_blocks_given_up = deferred, given_up


def _count_loads(row: StepRow, scheduler: SchedulerState) -> None:
    """Counts the KV loads under way, and those that are through."""
    row.num_loads_in_flight = row.num_loaded_not_promoted = 0
    if row.num_kv_holding_waiting:
        holding = list(scheduler.kv_holding_waiting)
        row.num_loads_in_flight = sum(request.is_loading for request in holding)
        row.num_loaded_not_promoted = sum(request.has_loaded for request in holding)
    row.oldest_load_ns = scheduler.transfers.oldest_load_ns(row.ts)


def _min_follower_blocks(scheduler: SchedulerState) -> int | None:
    """Returns the least blocks that one of the requests behind the head would fill."""
    followers = islice(scheduler.waiting.near_head(NUM_FOLLOWERS + 1), 1, None)
    return min((scheduler.kv.num_blocks_for_all(request) for request in followers), default=None)


def _split_tokens(row: StepRow, plan: StepPlan) -> None:
    """Splits the scheduled tokens: computed before, prompt, output, drafts, padding."""
    prefill = recomputed = drafts = padding = num_prefills = top_tokens = num_decodes = 0
    if plan.decodes is not None:
        num_decodes = len(plan.decodes)
        row.top_request, top_tokens = int(plan.decodes.order.number[0]), 1
    for grant in plan.grants.values():
        request, num_tokens = grant.request, grant.num_tokens
        start = request.num_computed_tokens
        if num_tokens > top_tokens:
            row.top_request, top_tokens = request.number, num_tokens
        if grant.drafts:
            # A running request's placeholders are filled by the runner (asynchronous scheduling).
            if grant.drafts[0] == PLACEHOLDER and request in (plan.admitted + plan.resumed):
                padding += len(grant.drafts)
            else:
                drafts += len(grant.drafts)
            num_tokens -= len(grant.drafts)
        if (
            num_tokens == 1
            and start >= request.num_prompt_tokens
            and (start >= request.high_water_mark)
        ):
            continue  # a decode, as nearly all are
        end = start + num_tokens
        fresh = min(max(start, request.high_water_mark), end)
        recomputed += fresh - start
        prefill += max(0, min(end, request.num_prompt_tokens) - fresh)
        num_prefills += request.num_output_tokens == 0 or start < request.num_tokens - 1
    row.num_recomputed_tokens, row.num_prefill_tokens = recomputed, prefill
    row.num_draft_tokens, row.num_padding_tokens = drafts, padding
    total = plan.full_budget - plan.token_budget
    row.num_decode_tokens = total - recomputed - prefill - drafts - padding
    row.num_placed = drafts + padding or None
    row.num_prefill_requests = num_prefills
    row.num_decode_requests = num_decodes + len(plan.grants) - num_prefills
    row.top_request_tokens = top_tokens or None


def with_accepted(rows: StepRequests, accepted: dict[int, int]) -> StepRequests:
    """Returns the dense rows with how many drafts of each request were right."""
    numbers = [accepted.get(int(number), 0) for number in rows.request]
    return replace(rows, num_accepted=np.array(numbers, dtype=np.uint16))


def step_requests(plan: StepPlan, scheduler: SchedulerState) -> StepRequests:
    """Returns the dense rows: who was given tokens, then who ran and was given none."""
    if plan.decodes is None:
        return _others(plan, scheduler)
    decodes = _decodes(plan.decodes, scheduler.kv.block_size)
    return _joined(decodes, _others(plan, scheduler)) if plan.grants or plan.zeros else decodes


@lru_cache(maxsize=64)
def _constant_columns(
    num_rows: int,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Returns the columns that are the same for all decodes: one token, no drafts, no reason."""
    return (
        np.ones(num_rows, dtype=np.uint32),
        np.zeros(num_rows, dtype=np.uint16),
        np.full(num_rows, NO_REASON, dtype=np.uint8),
    )


def _decodes(batch: DecodeBatch, block_size: int) -> StepRequests:
    """Returns the dense rows of the requests that are columns already."""
    one, zero, no_reason = _constant_columns(len(batch))
    computed = (batch.order.offset32 + np.int32(batch.num_scheduled)).view(np.uint32)
    return StepRequests(
        request=batch.order.number32,
        num_wanted_tokens=one,
        num_scheduled_tokens=one,
        num_computed_tokens=computed,
        num_known_tokens=computed + np.uint32(batch.num_taken + 1 - batch.num_scheduled),
        num_drafts=zero,
        num_blocks=(computed + np.uint32(block_size)) // np.uint32(block_size),
        zero_reason=no_reason,
    )


def _joined(first: StepRequests, second: StepRequests) -> StepRequests:
    """Returns the rows of both, one behind the other."""
    names = [each.name for each in fields(StepRequests) if getattr(first, each.name) is not None]
    return StepRequests(
        **{name: np.concatenate((getattr(first, name), getattr(second, name))) for name in names}
    )


def _others(plan: StepPlan, scheduler: SchedulerState) -> StepRequests:
    """Returns the dense rows of the requests that are told one by one."""
    grants, zeros = plan.grants.values(), plan.zeros
    requests = [grant.request for grant in grants] + [request for request, _, _ in zeros]
    return StepRequests(
        request=_column([request.number for request in requests]),
        num_wanted_tokens=_column(
            [g.num_wanted for g in grants] + [wanted for _, wanted, _ in zeros]
        ),
        num_scheduled_tokens=_column([g.num_tokens for g in grants] + [0] * len(zeros)),
        num_computed_tokens=_column([request.num_computed_tokens for request in requests]),
        num_known_tokens=_column([len(request.token_ids) for request in requests]),
        num_drafts=np.array([len(g.drafts) for g in grants] + [0] * len(zeros), dtype=np.uint16),
        num_blocks=_column(scheduler.kv.num_blocks_held_by(requests)),
        zero_reason=np.array([NO_REASON] * len(grants) + [r for *_, r in zeros], dtype=np.uint8),
    )


def _column(values: list[int]) -> npt.NDArray[np.uint32]:
    return np.array(values, dtype=np.uint32)
