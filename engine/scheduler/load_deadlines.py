"""How long the engine waits for KV transfers, and what it does when they take longer.

Two questions are kept apart, for a transfer that is late may still write into blocks, or read them:

    a time-out decides about the request   it goes on without the load, or ends; that an
                                           acknowledgement is late is only told
    the end of the transfer, or a lease    gives the blocks back: what the runner reports however
                                           late, or `lease_seconds` since the request let go of them

Blocks of a load that was given up are set apart under a ticket of their own, so that their request
can start over with others. While they are, it is not loaded again: the report of the old transfer
could be taken for one of the new.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import takewhile
from typing import TypeVar

from engine.request import Request
from engine.scheduler.kv_loads import fails_requests, release_given_up, release_kept
from engine.scheduler.state import SchedulerState
from engine.scheduler.transfers import GivenUp
from telemetry.vocabulary import EventKind

_NS = 1_000_000_000
_Key = TypeVar("_Key", bound=Hashable)


def check_deadlines(state: SchedulerState, now: int) -> None:
    """Gives up what has taken too long by `now`, ns on the scheduler's clock."""
    config = state.config.kv_connector
    if state.connector is None or config is None:
        return
    transfers = state.transfers
    for request in _overdue(transfers.loads_since, config.load_timeout_seconds, now):
        give_up_load(state, request, now)
    for request_id in _overdue(transfers.acks_since, config.ack_timeout_seconds, now):
        del transfers.acks_since[request_id]
        _tell(state, EventKind.ack_timed_out, state.kept[request_id])
    for request_id in _overdue(transfers.kept_since, config.lease_seconds, now):
        release_kept(state, request_id, EventKind.lease_expired)
    given_up_since = {name: lost.since for name, lost in transfers.given_up.items()}
    for request_id in _overdue(given_up_since, config.lease_seconds, now):
        release_given_up(state, request_id, EventKind.lease_expired)


def _overdue(since: Mapping[_Key, int], seconds: float | None, now: int) -> list[_Key]:
    """Returns what began so long ago; the mapping is in the order in which things began."""
    if seconds is None or not since:
        return []
    latest = now - int(seconds * _NS)
    return list(takewhile(lambda key: since[key] <= latest, since))


def give_up_load(state: SchedulerState, request: Request, now: int) -> None:
    """Goes on without a load that takes too long, as the failure policy says."""
    began = state.transfers.loads_since.pop(request)
    _tell(state, EventKind.load_timed_out, request)
    if fails_requests(state):  # its blocks are kept when it ends, for it is still loading
        state.failed[request] = (
            f"its KV load was not done after {(now - began) / _NS:.3g} s "
            "(load_timeout_seconds): look at the connector, or raise the time-out"
        )
        return
    ticket = state.kv.set_apart(request)
    state.transfers.given_up[request.request_id] = GivenUp(request, ticket, now)
    state.transfers.newly_given_up.append(request.request_id)
    state.reserving.discard(request)
    request.is_loading = False
    request.blocked_by = None
    request.num_computed_tokens = 0
    state.kv_holding_waiting.remove([request])
    state.waiting.put_back(request)


def _tell(state: SchedulerState, kind: EventKind, request: Request) -> None:
    state.journal.connector(kind, request, num_blocks=state.kv.num_blocks_held(request))
