"""Encoder inputs of a step: what has to be encoded before its tokens can run, and what fits.

Items of a prompt that the step's tokens touch must be in the encoder cache, or be encoded in this
step. Where the compute budget or the cache has no room for one, the step ends before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.encoder_cache import EncoderCache
from engine.request import Request
from engine.scheduler.plan import Grant, StepPlan
from engine.scheduler.state import SchedulerState
from telemetry.vocabulary import StopReason, ZeroReason


class MismatchedItemError(ValueError):
    """Two items have the same key and different lengths: one of them is not what its key says."""


@dataclass(frozen=True, slots=True)
class EncoderFit:
    """How far a grant may go, which items it encodes, and what cut it if anything did."""

    num_tokens: int
    items: list[int] = field(default_factory=list)
    cut_by: ZeroReason | None = None

    @property
    def stop_reason(self) -> StopReason:
        """What the cut is called where it ends the admission."""
        return StopReason[(self.cut_by or ZeroReason.encoder_budget).name]


def fit_encoder_inputs(
    state: SchedulerState,
    plan: StepPlan,
    request: Request,
    num_computed_tokens: int,
    num_tokens: int,
) -> EncoderFit:
    """Returns how many of a request's tokens can run, given its encoder items.

    References to the cached items that are touched are taken at once.

    Raises:
        MismatchedItemError: an item's key is there with another length.
    """
    cache = state.encoder_cache
    if cache is None or not request.encoder_items or num_tokens <= 0:
        return EncoderFit(num_tokens)
    prefill_lookahead = state.config.speculation.prefill_lookahead
    start = num_computed_tokens + prefill_lookahead
    end = num_computed_tokens + num_tokens
    items: list[int] = []
    lengths: dict[str, int] = {}
    for index, item in enumerate(request.encoder_items):
        if item.position >= end + prefill_lookahead:
            break
        if item.end <= num_computed_tokens:
            continue
        known = lengths.get(item.key, cache.length_of(item.key))
        if known is not None and known != item.num_embeds:
            raise MismatchedItemError(
                f"encoder item {item.key!r} has {item.num_embeds} embeddings here and {known} in "
                "the cache: give different contents different keys"
            )
        if item.key in lengths:
            continue
        if known is not None:
            cache.hold(item.key, (request.number, index))
            continue
        if _splits_are_off(state) and num_computed_tokens < item.position and end < item.end:
            return EncoderFit(max(0, item.position - start), items, ZeroReason.token_budget)
        cut_by = _shortage(cache, plan, [*lengths.values(), item.num_embeds])
        if cut_by is not None:
            return EncoderFit(max(0, item.position - start), items, cut_by)
        lengths[item.key] = item.num_embeds
        items.append(index)
    return EncoderFit(num_tokens, items)


def _splits_are_off(state: SchedulerState) -> bool:
    return state.config.encoder is not None and state.config.encoder.disable_chunked_mm_input


def _shortage(cache: EncoderCache, plan: StepPlan, sizes: list[int]) -> ZeroReason | None:
    """Makes room for items of these sizes, the last one new; returns what lacks if it cannot."""
    if sum(sizes) > plan.encoder_budget:
        return ZeroReason.encoder_budget
    return None if cache.make_room(sum(sizes)) else ZeroReason.encoder_cache


def enter_items(cache: EncoderCache | None, grant: Grant) -> None:
    """Enters what a grant encodes in the cache."""
    if cache is None:
        return
    for index in grant.encoder_items:
        item = grant.request.encoder_items[index]
        cache.enter(item, (grant.request.number, index))


def let_go_of_all(cache: EncoderCache | None, request: Request) -> None:
    """Drops all references of a request."""
    if cache is not None:
        for index, item in enumerate(request.encoder_items):
            cache.let_go(item.key, (request.number, index))


def let_go_of_passed(cache: EncoderCache | None, request: Request, prefill_lookahead: int) -> None:
    """Drops the references to items that a request's computed tokens have passed."""
    if cache is not None:
        for index, item in enumerate(request.encoder_items):
            if item.end + prefill_lookahead <= request.num_computed_tokens:
                cache.let_go(item.key, (request.number, index))
