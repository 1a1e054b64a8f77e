"""What a decided step tells the connectors' workers."""

from __future__ import annotations

from collections.abc import Iterator

from engine.connectors import ECConnectorMetadata, KVConnectorMetadata, KVLoad
from engine.scheduler.plan import StepPlan
from engine.scheduler.state import SchedulerState


def kv_metadata(state: SchedulerState, plan: StepPlan) -> KVConnectorMetadata | None:
    """Returns the KV transfers that begin with a step; None without a connector."""
    if state.connector is None:
        return None
    given_up = tuple(state.transfers.newly_given_up)
    state.transfers.newly_given_up.clear()
    return KVConnectorMetadata(loads=tuple(_loads(state, plan)), given_up=given_up)


def _loads(state: SchedulerState, plan: StepPlan) -> Iterator[KVLoad]:
    for request_id, num_external in plan.num_external_tokens.items():
        if num_external > 0:
            yield KVLoad(
                request_id=request_id,
                block_ids=plan.grants[request_id].new_blocks,
                num_local_tokens=plan.num_hit_tokens[request_id] or 0,
                num_external_tokens=num_external,
                is_async=False,
            )
    for request_id, (_, num_local, num_external) in plan.loads_started.items():
        yield KVLoad(
            request_id=request_id,
            block_ids=state.kv.block_ids(state.requests[request_id]),
            num_local_tokens=num_local,
            num_external_tokens=num_external,
            is_async=True,
        )


def ec_metadata(state: SchedulerState) -> ECConnectorMetadata | None:
    """Returns the encoder outputs that are sent for with a step; None without a connector."""
    if state.ec_connector is None:
        return None
    started, state.encoder_loads_started = state.encoder_loads_started, []
    return ECConnectorMetadata(loads=tuple(started))
