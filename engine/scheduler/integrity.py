"""Whether a scheduler's books are right, between two steps: queues, requests, blocks, caches.

It looks at everything and changes nothing. The sums come with the verdict: who is told that an
engine is healthy wants to see what was counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.kv_cache import KVReport
from engine.request import Request, RequestStatus

if TYPE_CHECKING:
    from engine.scheduler.state import SchedulerState


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityReport:
    """What was counted before step `step`, and every disagreement found.

    A block that several hold counts once: as running if any of them runs, else as waiting, else as
    kept. Kept are the blocks of requests that have ended, for a transfer or for a step in flight,
    and of loads that were given up.
    """

    step: int
    kv: KVReport
    num_running_blocks: int
    num_waiting_blocks: int
    num_kept_blocks: int
    num_running: int
    num_waiting: int
    num_kv_holding_waiting: int
    num_kept: int
    problems: tuple[str, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing disagrees."""
        return not self.problems

    def raise_if_broken(self) -> None:
        """Raises AssertionError with all problems, if there are any."""
        if self.problems:
            raise AssertionError("; ".join(self.problems))


def examine(state: SchedulerState, *, deep: bool) -> IntegrityReport:
    """Returns what the books say. `deep`: the keys of held blocks are worked out anew."""
    kept = list(state.kept.values())
    kv = state.kv.examine([*state.requests.values(), *kept], deep=deep)
    running = state.kv.blocks_held_by(state.running)
    waiting = state.kv.blocks_held_by([*state.waiting, *state.kv_holding_waiting]) - running
    tickets = [load.ticket for load in state.transfers.given_up.values()]
    tickets += [ticket for _, ticket in state.deferred_frees]
    set_apart = state.kv.blocks_set_apart(tickets)
    ended = (state.kv.blocks_held_by(kept) | set_apart) - running - waiting
    num_held = len(running) + len(waiting) + len(ended)
    problems = [*kv.problems, *_about_places(state), *_about_rows(state), *_about_progress(state)]
    num_unaccounted = kv.num_usable_blocks - state.kv.pool.num_free - num_held
    if num_unaccounted and not kv.problems:
        problems.append(f"{num_unaccounted:,} blocks are held by requests that nobody knows")
    if state.encoder_cache is not None:
        problems += state.encoder_cache.problems()
    return IntegrityReport(
        step=state.num_steps,
        kv=kv,
        num_running_blocks=len(running),
        num_waiting_blocks=len(waiting),
        num_kept_blocks=len(ended),
        num_running=len(state.running),
        num_waiting=len(state.waiting),
        num_kv_holding_waiting=len(state.kv_holding_waiting),
        num_kept=len(kept),
        problems=tuple(problems),
    )


def _about_rows(state: SchedulerState) -> Iterator[str]:
    """The first of the running list are the rows and those that rest among them, in order."""
    front = state.running[: state.decodes.num_in_front]
    rows = [request for request in front if request not in state.decodes.resting]
    if rows != state.decodes.order.requests:
        yield f"the {len(rows):,} rows of the array path are not the first of the running list"


def _about_places(state: SchedulerState) -> Iterator[str]:
    """Every request is in exactly one place, the one that its status says."""
    waiting = [*state.waiting, *state.kv_holding_waiting]
    places = [*state.running, *waiting]
    if not len(places) == len(set(places)) == len(state.requests):
        yield (
            f"a request is lost or twice: {len(state.requests):,} are known, {len(places):,} run "
            f"or wait, {len(set(places)):,} different ones"
        )
    for request in state.running:
        if request.status is not RequestStatus.RUNNING:
            yield f"request {request.number} runs and is {request.status.name}"
    for request in waiting:
        if request.status not in (RequestStatus.WAITING, RequestStatus.PREEMPTED):
            yield f"request {request.number} waits and is {request.status.name}"
    strays = set(state.skipped).difference(waiting)
    if strays:
        yield f"{len(strays):,} requests count as set aside and do not wait"


def _about_progress(state: SchedulerState) -> Iterator[str]:
    for request in state.requests.values():
        known = _num_known_tokens(request)
        if not state.limits.async_scheduling:  # drafts in a pipeline count, without a placeholder
            known += request.num_in_flight_tokens
        if not 0 <= request.num_computed_tokens <= known:
            yield (
                f"computed beyond known: request {request.number} has "
                f"{request.num_computed_tokens:,} computed tokens of {known:,}"
            )


def _num_known_tokens(request: Request) -> int:
    """Returns how many tokens may be computed at most.

    A session's turn that was cut inside its drafts keeps their count until the next, as the
    original does.
    """
    if request.session is not None and request.blocked_by is not None:
        return max(0, request.num_computed_tokens)
    return request.num_tokens + request.num_output_placeholders
