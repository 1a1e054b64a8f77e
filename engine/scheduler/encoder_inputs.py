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
        is_split = num_computed_tokens < item.position and end < item.end
        planned = sum(lengths.values())
        cut_by = _obstacle(state, plan, request, item, planned, is_split=is_split)
        if cut_by is not None:
            room = item.position - num_computed_tokens
            if room > 0 and room <= prefill_lookahead and cut_by is not ZeroReason.encoder_transfer:
                cut_by = ZeroReason.prefill_lookahead
            return EncoderFit(max(0, room - prefill_lookahead), items, cut_by)
        lengths[item.key] = item.num_embeds
        items.append(index)
    return EncoderFit(num_tokens, items)


def _obstacle(
    state: SchedulerState,
    plan: StepPlan,
    request: Request,
    item: EncoderItem,
    num_planned: int,
    *,
    is_split: bool,
) -> ZeroReason | None:
    """Returns what keeps an item from being encoded in this step; makes room for it otherwise.

    Args:
        num_planned: embeddings of the items that the same grant encodes before it.
        is_split: the step would end in the middle of the item.
    """
    cache, config = state.encoder_cache, state.config.encoder
    if is_on_its_way(state, request, item, num_planned=num_planned):
        return ZeroReason.encoder_transfer
    if is_split and config is not None and config.disable_chunked_mm_input:
        return ZeroReason.token_budget
    num_embeds = num_planned + item.num_embeds
    if num_embeds > plan.encoder_budget:
        return ZeroReason.encoder_budget
    assert cache is not None
    return None if cache.make_room(num_embeds) else ZeroReason.encoder_cache


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
