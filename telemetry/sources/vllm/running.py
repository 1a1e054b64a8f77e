"""The scan of the running requests: who wanted blocks and got none, and who got no token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from telemetry.sources.vllm.block_needs import BlockNeeds, Wish
from telemetry.sources.vllm.encoder import EncoderStops
from telemetry.vocabulary import ZeroReason


@dataclass(slots=True)
class Wanting:
    """A running request whose allocation failed, and has not succeeded since."""

    request: Any
    num_blocks_needed: int | None
    behind: frozenset[str]
    """Requests behind it in the running list when it failed: the scan has not reached them."""


class RunningScan:
    """Follows the scan of one step over the running requests.

    Invariants:
        `wanting` is not None from a failed allocation on, until the same request gets its blocks.
    """

    def __init__(
        self, scheduler: Any, pauses: Any, needs: BlockNeeds, encoder: EncoderStops
    ) -> None:
        self.pauses = pauses
        self._wanting: Wanting | None = None
        self.granted: dict[str, int] = {}
        """Tokens that each request was given blocks for, where anybody asks for it."""
        self.embeds_granted: dict[str, int] = {}
        """Encoder embeddings that each of them was given, likewise."""
        self.tracks_grants = bool(scheduler.lora_config or scheduler.policy.value == "priority")
        self.hears_all = self.tracks_grants
        """Whether it matters in this step that a running request got its blocks."""
        self.defers_prefills = False
        self.is_throttled: bool | None = None
        """Whether prefills are held back in this step; None where nobody asked for it."""
        self._scheduler = scheduler
        self._needs = needs
        self._encoder = encoder

    @property
    def wanting(self) -> Wanting | None:
        """The running request that lacks blocks at the moment, if there is one."""
        return self._wanting

    @wanting.setter
    def wanting(self, wanting: Wanting | None) -> None:
        self._wanting = wanting
        self.hears_all = wanting is not None or self.tracks_grants

    def forget(self) -> None:
        """A step begins behind one in which something was heard."""
        self.wanting = None
        self.granted.clear()
        self.embeds_granted.clear()

    def begin(self, throttle_prefills: bool) -> None:
        """A step begins. Whether it holds prefills back is decided as vLLM does."""
        self.defers_prefills = False
        self.is_throttled = None
        if throttle_prefills:
            scheduler = self._scheduler
            self.defers_prefills = not scheduler.prefill_capacity_bound and any(
                not request.is_prefill_chunk for request in scheduler.running
            )
            self.is_throttled = self.defers_prefills

    def refused(self, request: Any, wish: Wish) -> None:
        """A running request got no blocks: vLLM evicts somebody for it, if it can."""
        needed = self._needs.of_running(request, wish)
        known = self.wanting
        if known is not None and known.request is request:
            known.num_blocks_needed = needed
            return
        running = self._scheduler.running
        place = running.index(request) + 1
        behind = frozenset(each.request_id for each in running[place:])
        self.wanting = Wanting(request, needed, behind)

    @property
    def is_paused(self) -> bool:
        """Whether an operator paused everything."""
        return self._scheduler.pause_state is self.pauses.PAUSED_ALL

    def zero_reasons(self, output: Any) -> Iterator[tuple[Any, ZeroReason | None]]:
        """Yields each running request that was given no token, and why; None where that is unknown.

        Asked once the step is decided, before anybody's progress is advanced.
        """
        running = self._scheduler.running
        scheduled: dict[str, int] = output.num_scheduled_tokens
        if self.is_paused:
            yield from ((each, ZeroReason.paused_all) for each in running)
            return
        wanting = self.wanting
        behind = wanting.behind if wanting is not None else frozenset()
        cause = ZeroReason.victim_not_releasable
        if wanting is not None and wanting.request not in running:
            cause = ZeroReason.behind_preempted
        served = [i for i, each in enumerate(running) if each.request_id in scheduled]
        is_used_up = wanting is None and self.budget_left(output) <= 0
        end = served[-1] if served else -1
        for index, request in enumerate(running):
            if request.request_id in scheduled:
                continue
            if request.request_id in behind or (wanting and request is wanting.request):
                yield request, cause
            elif is_used_up and index > end:
                yield request, ZeroReason.token_budget
            else:
                yield request, self._own_reason(request)

    def budget_left(self, output: Any) -> int:
        """Returns the tokens that one more request could be given in a step.

        Tokens of the step, and of the model's input, where each request takes slots for drafts.
        """
        if self.is_paused:
            return 0
        left: int = self._scheduler.max_num_scheduled_tokens - output.total_num_scheduled_tokens
        return min(left, self.input_left(output))

    def input_left(self, output: Any) -> int:
        """Returns the tokens of the model's input that one more request could use."""
        scheduler = self._scheduler
        spec = scheduler.vllm_config.speculative_config
        slots = spec.max_num_new_slots_for_drafting if spec is not None else 0
        used: int = output.total_num_scheduled_tokens
        if slots:
            used += slots * (len(output.num_scheduled_tokens) + 1)
        most: int = scheduler.scheduler_config.max_num_batched_tokens
        return most - used

    def _own_reason(self, request: Any) -> ZeroReason | None:
        """Returns why a request that the scan came to got nothing, in the order vLLM asks."""
        scheduler = self._scheduler
        placeholders = request.num_output_placeholders
        end = request.num_prompt_tokens + request.max_tokens
        if placeholders > 0 and request.num_computed_tokens + 2 - placeholders >= end:
            return ZeroReason.max_tokens_in_flight
        if scheduler.current_step < request.next_decode_eligible_step:
            return ZeroReason.pipeline_cadence
        if self.defers_prefills and request.is_prefill_chunk:
            return ZeroReason.prefill_throttled
        cut_by = self._encoder.of(request)
        if cut_by is not None:
            return ZeroReason[cut_by.name]
        room = scheduler.max_model_len - request.num_computed_tokens
        if room - scheduler.num_sampled_tokens_per_step <= 0:
            return ZeroReason.max_model_len
        wanted = request.num_tokens_with_spec + placeholders - request.num_computed_tokens
        if wanted <= 0:
            return ZeroReason.pipeline_cadence
        if scheduler.need_mamba_block_aligned_split:
            return ZeroReason.block_alignment
        if scheduler.num_prefill_lookahead:
            return ZeroReason.prefill_lookahead
        has_whole_items = scheduler.scheduler_config.disable_chunked_mm_input
        return ZeroReason.token_budget if has_whole_items and request.mm_features else None
