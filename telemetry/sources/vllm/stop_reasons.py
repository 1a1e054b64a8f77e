"""Why the scan of the waiting requests ended, and who was the head then.

Worked out once the step is decided, in the order in which vLLM asks: the limits that keep anybody
out, then those that the request it looked at last ran into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from telemetry.sources.vllm.encoder import EncoderStops
from telemetry.sources.vllm.running import RunningScan
from telemetry.sources.vllm.waiting import WaitingScan
from telemetry.vocabulary import StopReason


@dataclass(frozen=True, slots=True)
class AdmissionStop:
    """Why admission ended, who was the head, and the blocks it would have needed."""

    reason: StopReason | None
    head: Any = None
    num_blocks_needed: int | None = None


QUEUE_EMPTY = AdmissionStop(StopReason.queue_empty)


class StopReasons:
    """Tells why a step let nobody else in."""

    def __init__(
        self, scheduler: Any, waiting: WaitingScan, running: RunningScan, encoder: EncoderStops
    ) -> None:
        self._scheduler = scheduler
        self._waiting = waiting
        self._running = running
        self._encoder = encoder

    def of_step(
        self, output: Any, num_waiting: int, num_holding: int, *, has_preempted: bool
    ) -> AdmissionStop:
        """Returns why the scan of the step just decided ended.

        Args:
            num_waiting: requests that wait, `num_holding` of them with blocks.
        """
        scan = self._waiting
        if not num_waiting:
            return QUEUE_EMPTY
        if self._running.is_paused:
            return AdmissionStop(StopReason.paused_all)
        if has_preempted:
            return AdmissionStop(StopReason.preempted_this_step)
        if scan.refused is not None:
            head, shortage = scan.refused
            return AdmissionStop(shortage.reason, head, shortage.num_blocks_needed)
        if scan.pending is not None:
            return AdmissionStop(self._own_stop(scan.pending, output), scan.pending)
        head = scan.head(num_waiting, num_holding)
        return QUEUE_EMPTY if head is None else self._limit(head, output)

    def _limit(self, head: Any, output: Any) -> AdmissionStop:
        """Returns the limit that kept the next one out, whoever it is."""
        scheduler = self._scheduler
        if output.total_num_scheduled_tokens >= scheduler.max_num_scheduled_tokens:
            return AdmissionStop(StopReason.token_budget, head)
        if self._running.input_left(output) <= 0:
            return AdmissionStop(StopReason.input_budget, head)
        is_paused = scheduler.pause_state is self._running.pauses.PAUSED_NEW
        if is_paused and not self._waiting.holds_blocks(head):
            return AdmissionStop(StopReason.paused_new, head)
        if scheduler.max_num_active_reqs < scheduler.max_num_running_reqs:
            return AdmissionStop(StopReason.max_num_active_seqs, head)
        return AdmissionStop(StopReason.max_num_seqs, head)

    def _own_stop(self, request: Any, output: Any) -> StopReason | None:
        """Returns why a request that could have run was not given anything."""
        scheduler = self._scheduler
        start = self._waiting.num_computed_tokens
        if start is None:
            return None
        wanted = request.num_tokens - start
        if self._running.defers_prefills and wanted > 1:
            return StopReason.prefill_throttled
        room = self._running.budget_left(output)
        padded = 1 + scheduler.num_spec_tokens
        if wanted == 1 and padded > max(1, room):
            return StopReason.draft_padding
        if not scheduler.scheduler_config.enable_chunked_prefill and self._capped(wanted) > room:
            return StopReason.chunked_prefill_disabled
        cut_by = self._encoder.stop_of(request)
        if cut_by is not None:
            return cut_by
        if scheduler.need_mamba_block_aligned_split:
            return StopReason.block_alignment
        if scheduler.num_prefill_lookahead:
            return StopReason.prefill_lookahead
        has_whole_items = scheduler.scheduler_config.disable_chunked_mm_input
        return StopReason.token_budget if has_whole_items and request.mm_features else None

    def _capped(self, wanted: int) -> int:
        """Returns how many tokens the limit on a single long prompt leaves of those wanted."""
        config = self._scheduler.scheduler_config
        most = int(config.long_prefill_token_threshold)
        num_requests = sum(self._scheduler.get_request_counts())
        if most <= 0 or num_requests < 2:
            return wanted
        if config.long_prefill_token_threshold_adaptive:
            most = max(most, config.max_num_batched_tokens // num_requests)
        return min(wanted, most)
