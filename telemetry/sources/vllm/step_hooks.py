"""What the journal hears of a step: it begins, it is decided, it is taken in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telemetry.records import DraftCounts, StepRow
from telemetry.sources.vllm.dense_rows import with_accepted
from telemetry.sources.vllm.encoder import count_encoder, encoder_events
from telemetry.sources.vllm.lives import Life
from telemetry.sources.vllm.parts import Parts
from telemetry.sources.vllm.steps import OpenStep
from telemetry.vocabulary import EventKind


class StepHooks(Parts):
    """Makes a row of each step."""

    has_scanned: bool
    admitted: dict[str, Life]
    num_hit_tokens: int
    num_external_tokens: int
    forget_scan: Callable[[], None]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        features = self.features
        self._sees_admissions = features.request_events and features.allocation_failures
        self._was_throttled = False
        self._accepted: dict[int, int] = {}

    # ------------------------------------------------------------------------------ schedule()

    def before_schedule(self, throttle_prefills: bool = False) -> None:
        """A step begins; it is told where prefills begin to be held back."""
        if self.allocations is not None:
            self.allocations.begin()
        if self.has_scanned:
            self.forget_scan()
        self.running.begin(throttle_prefills)
        self.steps.begin()
        if self.running.defers_prefills and not self._was_throttled:
            self.tell(self.note(EventKind.throttled, None))
        self._was_throttled = self.running.defers_prefills

    def before_update_after_schedule(self, scheduler_output: Any) -> None:
        """The step is decided; nobody's progress has been advanced yet."""
        step = self.steps.at_hand
        if step is None:
            return
        row = self.rows.row(step, scheduler_output)
        if self.running.is_throttled is not None:
            row.throttled = int(self.running.is_throttled)
        self._add_features(row, step, scheduler_output)
        if self.features.dense_rows:
            zeros = self.running.zero_reasons(scheduler_output) if row.num_zero_requests else ()
            step.requests = self.dense.rows(scheduler_output, zeros, self.admitted)
        step.row = row

    def after_schedule(self, output: Any, throttle_prefills: bool = False) -> None:
        """The step is on its way to the model."""
        self.steps.decided(output)

    def _add_features(self, row: StepRow, step: OpenStep, output: Any) -> None:
        """Adds what not every vLLM lets us see."""
        if self._sees_admissions:
            self.rows.add_admissions(row, self.admitted)
            row.num_prefix_hit_tokens = self.num_hit_tokens
            row.num_external_tokens = self.num_external_tokens
        if self.features.preemptions:
            row.num_preempted = len(self.preemptions.in_step)
            if self._sees_admissions:
                self.rows.split_tokens(row, output, self.admitted)
        if self.features.waiting_reasons and self.features.allocation_failures:
            has_preempted = bool(self.preemptions.in_step)
            waiting, holding = row.num_waiting or 0, row.num_kv_holding_waiting or 0
            stop = self.stop_reasons.of_step(output, waiting, holding, has_preempted=has_preempted)
            self.rows.add_stop(row, stop)
        if self.features.kv_blocks:
            self.blocks.count(row, self.lives.kept)
        if self.features.connector_stages and self.scheduler.connector is not None:
            self.loads.count(row)
        else:
            row.num_loads_in_flight = row.num_loaded_not_promoted = 0
        if self.features.encoder and self.scheduler.max_num_encoder_input_tokens:
            count_encoder(row, self.scheduler, output)
            step.events.extend(
                encoder_events(output, self.lives.by_id, self.keys, step.step, self.clock)
            )

    # -------------------------------------------------------------------- update_from_output()

    def before_update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> None:
        """A step has been executed; vLLM is about to take its tokens in."""
        self.steps.begin_update(scheduler_output)
        self.update_ts = self.clock()
        drafts = scheduler_output.scheduled_spec_decode_tokens
        if drafts:
            self._verify(drafts, model_runner_output)

    def after_update_from_output(
        self, result: Any, scheduler_output: Any, model_runner_output: Any
    ) -> None:
        """The tokens are in: tells who got some, who ended, and hands the step over."""
        ids = [
            output.request_id
            for outputs in result.values()
            for output in outputs.outputs
            if output.new_token_ids
        ]
        self.times.took(ids, self.lives.by_id, self.update_ts)
        self.tell_late()
        step = self.steps.at_hand
        if step is not None and step.row is not None and step.row.num_placed:
            self._add_accepted(step, step.row)
        update_ts, self.update_ts = self.update_ts, 0
        self.steps.finish(scheduler_output, update_ts)

    def _verify(self, drafts: dict[str, list[int]], runner_output: Any) -> None:
        """Counts how many drafts were right, before vLLM cuts what lies behind an end token."""
        self._accepted = {}
        sampled = runner_output.sampled_token_ids
        num_own = self.scheduler.num_sampled_tokens_per_step
        for name, placed in drafts.items():
            life = self.lives.by_id.get(name)
            request = self.scheduler.requests.get(name)
            if life is None or request is None or request.is_finished():
                continue
            if request.num_stale_output_tokens and request.drop_stale_output:
                continue
            tokens = sampled[runner_output.req_id_to_index[name]] if sampled else ()
            if not len(tokens):
                continue
            num_accepted = min(max(len(tokens) - num_own, 0), len(placed))
            life.drafts_placed.append(len(placed))
            life.drafts_accepted.append(num_accepted)
            self._accepted[life.number] = num_accepted

    def _add_accepted(self, step: OpenStep, row: StepRow) -> None:
        accepted, self._accepted = self._accepted, {}
        row.num_accepted = sum(accepted.values())
        if step.requests is not None:
            step.requests = with_accepted(step.requests, accepted)
        event = DraftCounts(
            kind=EventKind.drafts_verified,
            step=step.step,
            ts=self.update_ts,
            draft_requests=list(accepted),
            draft_counts=list(accepted.values()),
        )
        if accepted:
            self.steps.tell(event)
