"""What the runner has to be told of a decided step: a delta to what it knows already."""

from __future__ import annotations

from engine.scheduler.connector_metadata import ec_metadata, kv_metadata
from engine.scheduler.output import CachedRequestData, NewRequestData, SchedulerOutput
from engine.scheduler.plan import StepPlan
from engine.scheduler.state import SchedulerState
from engine.scheduler.structured_output import bitmask_needs


def tell_runner(state: SchedulerState, plan: StepPlan) -> SchedulerOutput:
    """Returns the step's output; what has ended or was preempted is told once."""
    output = SchedulerOutput(
        step=plan.step,
        decodes=plan.decodes,
        total_num_scheduled_tokens=plan.full_budget - plan.token_budget,
    )
    if plan.grants:
        _tell_one_by_one(output, plan)
    if plan.grants or (plan.decodes is not None and plan.decodes.order.structured):
        _tell_of_bitmasks(output, plan)
    if plan.loads_started:
        output.kv_loads_started = plan.loads_started
    if state.connector is not None:
        output.kv_connector_metadata = kv_metadata(state, plan)
    if state.ec_connector is not None:
        output.ec_connector_metadata = ec_metadata(state)
    if state.encoder_cache is not None:
        output.free_encoder_mm_hashes = tuple(state.encoder_cache.take_evicted())
    if state.finished_ids:
        output.finished_req_ids, state.finished_ids = frozenset(state.finished_ids), set()
    if state.preempted_ids:
        output.preempted_req_ids, state.preempted_ids = frozenset(state.preempted_ids), set()
        output.preempted_in_order = tuple(request.request_id for request in plan.preempted)
    return output


def _tell_of_bitmasks(output: SchedulerOutput, plan: StepPlan) -> None:
    """Tells of the requests whose output a grammar constrains, if there are any."""
    bitmask = bitmask_needs(plan)
    if bitmask is not None:
        output.has_structured_output_requests = True
        output.pending_structured_output_tokens = bitmask.is_pending
        output.structured_output_rows = bitmask.rows


def _tell_one_by_one(output: SchedulerOutput, plan: StepPlan) -> None:
    """Tells of the requests that are not columns."""
    grants = plan.grants
    output.other_scheduled_tokens = {name: grant.num_tokens for name, grant in grants.items()}
    output.scheduled_new_reqs = _new_requests(plan)
    output.other_cached_reqs = _known_requests(plan)
    output.num_prefix_hit_tokens = plan.num_hit_tokens
    output.num_external_tokens = plan.num_external_tokens
    output.scheduled_spec_decode_tokens = {
        name: grant.drafts for name, grant in grants.items() if grant.drafts
    }
    output.scheduled_encoder_inputs = {
        name: grant.encoder_items for name, grant in grants.items() if grant.encoder_items
    }


def _new_requests(plan: StepPlan) -> tuple[NewRequestData, ...]:
    """Returns all data of the requests that the runner has never seen."""
    return tuple(
        NewRequestData(
            request_id=request.request_id,
            prompt_token_ids=request.token_ids[: request.num_prompt_tokens],
            sampling=request.sampling,
            block_ids=plan.grants[request.request_id].new_blocks,
            num_computed_tokens=request.num_computed_tokens,
            output_token_ids=request.take_untold_tokens(),
            adapter=request.adapter,
        )
        for request in plan.admitted
    )


def _known_requests(plan: StepPlan) -> tuple[CachedRequestData, ...]:
    """Returns what has changed for the others; all of it for those that were preempted."""
    admitted, resumed = set(plan.admitted), set(plan.resumed)
    return tuple(
        CachedRequestData(
            request_id=grant.request.request_id,
            new_block_ids=grant.new_blocks if any(grant.new_blocks) else None,
            num_computed_tokens=grant.request.num_computed_tokens,
            num_output_tokens=grant.request.num_output_tokens,
            resumed=grant.request in resumed,
            all_token_ids=grant.request.token_ids[:] if grant.request in resumed else None,
            new_token_ids=() if grant.request in resumed else untold,
        )
        for grant in plan.grants.values()
        if grant.request not in admitted
        for untold in (grant.request.take_untold_tokens(),)
    )
