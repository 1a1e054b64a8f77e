"""How many KV blocks a request wanted that got none, and which of vLLM's checks said no.

vLLM answers a failed allocation with nothing. The numbers are worked out once more here, by the
same questions to its cache coordinator, which change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from telemetry.vocabulary import StopReason

NUM_FOLLOWERS = 16
"""Requests behind the head whose need of blocks is looked at."""

BLOCK_STOPS = frozenset(
    {
        StopReason.kv_blocks_chunk,
        StopReason.kv_blocks_whole_prompt,
        StopReason.kv_watermark,
        StopReason.kv_reserved_for_loads,
        StopReason.loaded_needs_blocks,
    }
)
"""Stops for want of blocks."""


@dataclass(slots=True, kw_only=True)
class Wish:
    """What `allocate_slots` was asked for; the names are vLLM's."""

    num_new_tokens: int
    num_new_computed_tokens: int = 0
    new_computed_blocks: Any = None
    num_lookahead_tokens: int = 0
    num_external_computed_tokens: int = 0
    delay_cache_blocks: bool = False
    num_encoder_tokens: int = 0
    full_sequence_must_fit: bool = False
    reserved_blocks: int = 0
    has_scheduled_reqs: bool = False


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an admission got no blocks: the check that failed, and its number."""

    reason: StopReason
    num_blocks_needed: int


class BlockNeeds:
    """Asks a scheduler's cache coordinator what requests need."""

    def __init__(self, scheduler: Any, statuses: Any) -> None:
        manager = scheduler.kv_cache_manager
        self._pool = manager.block_pool
        self._coordinator = manager.coordinator
        self._nothing = manager.empty_kv_cache_blocks.blocks
        self._watermark = manager.watermark_blocks
        self._max_model_len = scheduler.max_model_len
        self._spares_watermark = (statuses.WAITING, statuses.PREEMPTED)
        self._groups = tuple(
            (group.block_size, group.max_admission_blocks_per_request)
            for group in manager.coordinator.single_type_managers
        )

    def of_running(self, request: Any, wish: Wish) -> int:
        """Returns the blocks that a running request lacked."""
        return self._of_chunk(request, wish)

    def shortage(self, request: Any, wish: Wish) -> Shortage:
        """Returns why a waiting request got no blocks."""
        spares = wish.has_scheduled_reqs and request.status in self._spares_watermark
        kept = self._watermark if spares else 0
        free = int(self._pool.get_num_free_blocks())
        needed = 0
        for reason, ask in self._checks(wish):
            needed = ask(request, wish)
            if needed + kept <= free:
                continue
            if request.num_computed_tokens > 0:
                return Shortage(StopReason.loaded_needs_blocks, needed)
            if needed > free:
                return Shortage(reason, needed)
            return Shortage(StopReason.kv_watermark, needed + kept)
        return Shortage(StopReason.kv_reserved_for_loads, needed + kept + wish.reserved_blocks)

    def _checks(self, wish: Wish) -> tuple[tuple[StopReason, Callable[[Any, Wish], int]], ...]:
        """Returns vLLM's checks of an admission in their order; the last one is of the chunk."""
        chunk = (StopReason.kv_blocks_chunk, self._of_chunk)
        if not wish.full_sequence_must_fit:
            return (chunk,)
        return (StopReason.kv_blocks_whole_prompt, self._of_all), chunk

    def least_of(self, requests: Iterable[Any]) -> int | None:
        """Returns the least blocks that all known tokens of one of the next requests fill.

        Hits are not looked up.
        """
        followers = islice(requests, 1, 1 + NUM_FOLLOWERS)
        shortest = min([request.num_tokens for request in followers], default=None)
        return None if shortest is None else self._filled_by(shortest)

    def _filled_by(self, num_tokens: int) -> int:
        num_tokens = min(num_tokens, self._max_model_len)
        total = 0
        for block_size, most in self._groups:
            num = -(-num_tokens // block_size)
            total += num if most is None or num < most else most
        return total

    def _of_chunk(self, request: Any, wish: Wish) -> int:
        local = request.num_computed_tokens + wish.num_new_computed_tokens
        reached = local + wish.num_external_computed_tokens
        end = min(reached, self._max_model_len) + wish.num_new_tokens
        slots = min(end + wish.num_lookahead_tokens, self._max_model_len)
        return self._ask(request, wish, slots, end, (reached, local), is_whole=False)

    def _of_all(self, request: Any, wish: Wish) -> int:
        local = request.num_computed_tokens + wish.num_new_computed_tokens
        reached = min(local + wish.num_external_computed_tokens, self._max_model_len)
        num_tokens = min(request.num_tokens, self._max_model_len)
        return self._ask(request, wish, num_tokens, num_tokens, (reached, local), is_whole=True)

    def _ask(
        self,
        request: Any,
        wish: Wish,
        num_tokens: int,
        num_main_tokens: int,
        computed: tuple[int, int],
        *,
        is_whole: bool,
    ) -> int:
        hits = wish.new_computed_blocks
        return int(
            self._coordinator.get_num_blocks_to_allocate(
                request_id=request.request_id,
                num_tokens=num_tokens,
                new_computed_blocks=self._nothing if hits is None else hits.blocks,
                num_encoder_tokens=wish.num_encoder_tokens,
                total_computed_tokens=computed[0],
                num_local_computed_tokens=computed[1],
                num_tokens_main_model=num_main_tokens,
                apply_admission_cap=is_whole,
                prefill_end=max(request.num_prompt_tokens, request.num_tokens - 1),
            )
        )
