"""Encoder items: what kept one from being computed, and which were computed or thrown out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from telemetry.records import EncoderItemScheduled, Event, StepRow
from telemetry.sources.vllm.keys import SaltedKeys
from telemetry.sources.vllm.lives import Life
from telemetry.vocabulary import EventKind, StopReason, ZeroReason


class EncoderStops:
    """Remembers, for the length of a step, which requests were cut short by an encoder item."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._stops: dict[str, ZeroReason] = {}

    def begin(self) -> None:
        """A step begins."""
        if self._stops:
            self._stops.clear()

    def refused(self, request: Any, index: int, budget: int) -> None:
        """The encoder cache takes no more, or the step's encoder budget is used up."""
        is_over = request.get_num_encoder_embeds(index) > budget
        reason = ZeroReason.encoder_budget if is_over else ZeroReason.encoder_cache
        item = request.mm_features[index].mm_position.offset
        lookahead = self._scheduler.num_prefill_lookahead
        if 0 < item - request.num_computed_tokens <= lookahead:
            reason = ZeroReason.prefill_lookahead
        self._stops[request.request_id] = reason

    def on_its_way(self, request: Any) -> None:
        """The output of an item is being brought from elsewhere."""
        self._stops[request.request_id] = ZeroReason.encoder_transfer

    def of(self, request: Any) -> ZeroReason | None:
        """Returns what cut a request in this step; None if no encoder item did."""
        if request.request_id in self._scheduler.encoder_cache_mismatch_reqs:
            return ZeroReason.encoder_cache
        return self._stops.get(request.request_id)

    def stop_of(self, request: Any) -> StopReason | None:
        """Returns the same as a reason to end an admission."""
        cut_by = self.of(request)
        if cut_by is None or cut_by is ZeroReason.encoder_transfer:
            return None
        return StopReason[cut_by.name]


def encoder_events(
    output: Any, lives: dict[str, Life], keys: SaltedKeys, step: int, clock: Callable[[], int]
) -> Iterator[Event]:
    """Yields which items run in a step, and which were thrown out of the encoder cache."""
    for request_id, indices in output.scheduled_encoder_inputs.items():
        life = lives.get(request_id)
        if life is None:
            continue
        for index in indices:
            item = life.request.mm_features[index]
            yield EncoderItemScheduled(
                step=step,
                ts=clock(),
                request=life.number,
                item_index=index,
                position=item.mm_position.offset,
                num_embeds=item.mm_position.get_num_embeds(),
                item_key=keys.of(item.identifier),
            )
    for name in output.free_encoder_mm_hashes:
        yield Event(kind=EventKind.item_evicted, step=step, ts=clock(), text=keys.of(name))


def count_encoder(row: StepRow, scheduler: Any, output: Any) -> None:
    """Counts a step's encoder work into its row, and what the encoder cache has room for."""
    cache = scheduler.encoder_cache_manager
    row.encoder_budget = scheduler.max_num_encoder_input_tokens
    row.num_encoder_embeds = sum(
        scheduler.requests[request_id].get_num_encoder_embeds(index)
        for request_id, indices in output.scheduled_encoder_inputs.items()
        for index in indices
    )
    row.encoder_cache_free = getattr(cache, "num_free_slots", None)
    row.encoder_cache_reclaimable = getattr(cache, "num_freeable_slots", None)
