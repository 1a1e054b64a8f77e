"""A decided step as the step's own row: what was scheduled, who waits, where the blocks are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telemetry.records import StepRow
from telemetry.sources.vllm.block_needs import BLOCK_STOPS, BlockNeeds
from telemetry.sources.vllm.lives import Life, Lives
from telemetry.sources.vllm.running import RunningScan
from telemetry.sources.vllm.steps import OpenStep
from telemetry.sources.vllm.stop_reasons import AdmissionStop


class StepRows:
    """Makes the rows of one scheduler's steps.

    Asked once a step is decided, before anybody's progress is advanced.
    """

    def __init__(
        self, scheduler: Any, lives: Lives, running: RunningScan, needs: BlockNeeds
    ) -> None:
        self._running = running
        self._scheduler = scheduler
        self._lives = lives
        self._needs = needs

    def row(self, step: OpenStep, output: Any) -> StepRow:
        """Returns a step's row as far as every vLLM lets us see it."""
        scheduler = self._scheduler
        num_running = len(scheduler.running)
        num_holding = len(scheduler.kv_holding_waiting)
        row = StepRow(
            step=step.step,
            ts=step.ts,
            token_budget=self._budget(),
            num_scheduled_tokens=output.total_num_scheduled_tokens,
            num_zero_requests=num_running - len(output.num_scheduled_tokens),
            num_running=num_running,
            num_waiting=len(scheduler.waiting) + num_holding,
            num_skipped_waiting=len(scheduler.deferred_waiting),
            num_kv_holding_waiting=num_holding,
        )
        self._name_top(row, output)
        if scheduler.lora_config is not None:
            row.num_adapters = self._num_adapters(output.num_scheduled_tokens)
        return row

    def add_admissions(self, row: StepRow, admitted: Mapping[str, Life]) -> None:
        """Says in a step's row how many joined the running requests."""
        row.num_admitted = row.num_resumed = 0
        if admitted:
            row.num_resumed = sum(life.is_catching_up for life in admitted.values())
            row.num_admitted = len(admitted) - row.num_resumed

    def add_stop(self, row: StepRow, stop: AdmissionStop) -> None:
        """Says in a step's row why admission ended."""
        row.stop_reason = stop.reason
        row.head_blocks_needed = stop.num_blocks_needed
        if stop.head is not None:
            life = self._lives.of(stop.head)
            row.head_request = None if life is None else life.number
        if stop.reason in BLOCK_STOPS:
            waiting = self._scheduler.waiting
            row.min_follower_blocks_needed = self._needs.least_of(
                getattr(waiting, "_heap", waiting)
            )

    def _budget(self) -> int:
        most: int = self._scheduler.max_num_scheduled_tokens
        return 0 if self._running.is_paused else most

    def _num_adapters(self, scheduled: dict[str, int]) -> int:
        adapters = self._lives.with_adapter.items()
        return len({life.adapter for name, life in adapters if name in scheduled})

    def split_tokens(self, row: StepRow, output: Any, admitted: Mapping[str, Life]) -> None:
        """Splits the scheduled tokens: computed before, prompt, output, drafts, padding.

        Only requests that are not plainly decoding are looked at; what is left is output.
        """
        scheduled: dict[str, int] = output.num_scheduled_tokens
        drafts: dict[str, list[int]] = output.scheduled_spec_decode_tokens
        row.num_draft_tokens = row.num_padding_tokens = 0
        if drafts:
            row.num_draft_tokens = sum(len(ids) for n, ids in drafts.items() if n not in admitted)
            row.num_padding_tokens = sum(len(ids) for n, ids in drafts.items() if n in admitted)
        num_placed = row.num_draft_tokens + row.num_padding_tokens
        row.num_placed = num_placed or None
        recomputed = prefill = num_prefills = 0
        if self._lives.computing:
            recomputed, prefill, num_prefills = self._computing(scheduled, drafts)
        row.num_recomputed_tokens, row.num_prefill_tokens = recomputed, prefill
        total = output.total_num_scheduled_tokens
        row.num_decode_tokens = total - recomputed - prefill - num_placed
        row.num_prefill_requests = num_prefills
        row.num_decode_requests = len(scheduled) - num_prefills

    def _computing(
        self, scheduled: dict[str, int], drafts: dict[str, list[int]]
    ) -> tuple[int, int, int]:
        """Returns the tokens computed before, the new ones of prompts, and whose they are.

        Forgets those that have reached plain decoding.
        """
        recomputed = prefill = num_prefills = 0
        arrived = []
        for name, life in self._lives.computing.items():
            num_tokens = scheduled.get(name)
            if num_tokens is None:
                continue
            request = life.request
            start, num_prompt = request.num_computed_tokens, request.num_prompt_tokens
            if start >= life.high_water and start >= num_prompt:
                arrived.append(name)
                continue
            end = start + num_tokens - len(drafts.get(name, ()))
            fresh = min(max(start, life.high_water), end)
            recomputed += fresh - start
            prefill += max(0, min(end, num_prompt) - fresh)
            num_prefills += _is_prefill(request, start)
        for name in arrived:
            del self._lives.computing[name]
        return recomputed, prefill, num_prefills

    def _name_top(self, row: StepRow, output: Any) -> None:
        """Names the first of the requests that were given most tokens."""
        scheduled: dict[str, int] = output.num_scheduled_tokens
        if not scheduled:
            return
        if output.total_num_scheduled_tokens == len(scheduled):
            name = next(iter(scheduled))
        else:
            name = max(scheduled, key=scheduled.__getitem__)
        life = self._lives.by_id.get(name)
        row.top_request = None if life is None else life.number
        row.top_request_tokens = scheduled[name]


def _is_prefill(request: Any, start: int) -> bool:
    """Whether a request has more than one token to do, or no output yet."""
    return bool(request.num_output_tokens == 0 or start < request.num_tokens - 1)
