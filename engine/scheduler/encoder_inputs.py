"""Encoder inputs of a step: what has to be encoded before its tokens can run, and what fits.

Items of a prompt that the step's tokens touch must be in the encoder cache, or be encoded in this
step. Where the compute budget or the cache has no room for one, the step ends before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.encoder_cache import EncoderCache, EncoderItem
from engine.request import Request
from engine.scheduler.encoder_loads import is_on_its_way
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

    References to the cached items that are touched are taken at once. Where a drafter looks ahead
    (`prefill_lookahead`) the grant ends so far before the item that does not fit; if that leaves
    nothing, though there are tokens before the item, looking ahead is what cut it.

    Raises:
        MismatchedItemError: an item's key is there with another length.
    """
    cache = state.encoder_cache
    if cache is None or not request.encoder_items or num_tokens <= 0:
        return EncoderFit(num_tokens)
    prefill_lookahead = state.config.speculation.prefill_lookahead
    never_splits = (
        state.config.encoder is not None and state.config.encoder.disable_chunked_mm_input
    )
    end = num_computed_tokens + num_tokens
    items: list[int] = []
    lengths: dict[str, int] = {}
    for index, item in enumerate(request.encoder_items):
        if item.position >= end + prefill_lookahead:
            break
        if item.end <= num_computed_tokens:
            continue
        before = item.position - num_computed_tokens
        if never_splits and before > 0 and end < item.end:
            return _cut(before, prefill_lookahead, items, ZeroReason.token_budget)
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
        cut_by = _obstacle(state, plan, request, item, sum(lengths.values()))
        if cut_by is not None:
            return _cut(before, prefill_lookahead, items, cut_by)
        lengths[item.key] = item.num_embeds
        items.append(index)
    return EncoderFit(num_tokens, items)


def _cut(before: int, lookahead: int, items: list[int], cut_by: ZeroReason) -> EncoderFit:
    """Returns a grant that ends in time for an item which comes after `before` tokens of it."""
    if 0 < before <= lookahead and cut_by is not ZeroReason.encoder_transfer:
        cut_by = ZeroReason.prefill_lookahead
    return EncoderFit(max(0, before - lookahead), items, cut_by)


def _obstacle(
    state: SchedulerState,
    plan: StepPlan,
    request: Request,
    item: EncoderItem,
    num_planned: int,
) -> ZeroReason | None:
    """Returns what keeps an item from being encoded in this step; makes room for it otherwise.

    Args:
        num_planned: embeddings of the items that the same grant encodes before it.
    """
    cache = state.encoder_cache
    if is_on_its_way(state, request, item, num_planned=num_planned):
        return ZeroReason.encoder_transfer
    num_embeds = num_planned + item.num_embeds
    if num_embeds > plan.encoder_budget:
        return ZeroReason.encoder_budget
    assert cache is not None
    return None if cache.make_room(num_embeds) else ZeroReason.encoder_cache


def enter_items(state: SchedulerState, grant: Grant) -> None:
    """Enters what a grant encodes in the cache; its items of the same keys refer to it as well."""
    cache, request = state.encoder_cache, grant.request
    if cache is None or not grant.encoder_items:
        return
    for index in grant.encoder_items:
        cache.enter(request.encoder_items[index], (request.number, index))
    keys = {request.encoder_items[index].key for index in grant.encoder_items}
    first = request.num_computed_tokens
    end = first + grant.num_tokens + state.config.speculation.prefill_lookahead
    for index, item in enumerate(request.encoder_items):
        is_repeated = item.key in keys and index not in grant.encoder_items
        if is_repeated and item.position < end and item.end > first:
            cache.hold(item.key, (request.number, index))


def let_go_of_all(cache: EncoderCache | None, request: Request) -> None:
    """Drops all references of a request."""
    if cache is not None:
        for index, item in enumerate(request.encoder_items):
            cache.let_go(item.key, (request.number, index))


def let_go_of_passed(state: SchedulerState, request: Request) -> None:
    """Drops the references to items that a request's computed tokens have passed.

    Asked when a step of it has come back, before its tokens are appended; those that are expected
    are not computed yet.
    """
    cache = state.encoder_cache
    if cache is None:
        return
    passed = request.num_computed_tokens - request.num_output_placeholders
    passed -= state.config.speculation.prefill_lookahead
    for index, item in enumerate(request.encoder_items):
        if item.end <= passed:
            cache.let_go(item.key, (request.number, index))
