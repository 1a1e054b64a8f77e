"""A runner that returns scripted tokens instead of computing them.

It keeps the little that the scheduler's deltas tell it: how many tokens a request has, and how many
are computed. With it the whole engine core runs without a model. It does not sleep unless told to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from engine.connectors.worker import KVTransferWorker, Placed
from engine.runner.batch_error import BatchError
from engine.scheduler.output import CachedRequestData, ModelRunnerOutput, SchedulerOutput
from engine.structured_output.bitmask import GrammarBitmask

TokenScript = Callable[[str, int], int]
"""Gives the n-th output (from 0) of a request."""


@dataclass(slots=True)
class _Progress:
    num_prompt_tokens: int
    num_tokens: int
    num_computed_tokens: int


class ScriptedRunner:
    """Answers each request that reaches its newest token with `script(request_id, n)`.

    Args:
        script: the tokens.
        step_seconds: how long a step really takes, if not no time at all.
    """

    def __init__(
        self,
        script: TokenScript,
        *,
        step_seconds: Callable[[SchedulerOutput], float] | None = None,
    ) -> None:
        self._script = script
        self._step_seconds = step_seconds
        self._progress: dict[str, _Progress] = {}
        self._void: set[str] = set()
        """Requests that may have computed from blocks that failed to load."""
        self.transfers: KVTransferWorker | None = None
        """Moves blocks without content, where a connector is tried out; set it before a step."""

    @property
    def request_ids(self) -> frozenset[str]:
        """Requests in its batch."""
        return frozenset(self._progress)

    def execute(
        self, output: SchedulerOutput, bitmask: GrammarBitmask | None = None
    ) -> ModelRunnerOutput:
        """Returns the scripted tokens of this step, whatever a grammar says.

        Raises:
            BatchError: the deltas contradict what they said before.
        """
        if self.transfers is None:
            return self._run(output)
        report = self.transfers.begin_step(output, self._placed)
        result = self._run(output)
        if report is None:
            return result
        if report.invalid_block_ids:
            self._void |= output.num_scheduled_tokens.keys()
        return report.added_to(result)

    def _run(self, output: SchedulerOutput) -> ModelRunnerOutput:
        started = time.monotonic_ns()
        self._apply(output)
        sampled = {
            request_id: [token]
            for request_id, num_scheduled in output.num_scheduled_tokens.items()
            if (token := self._advance(request_id, num_scheduled)) is not None
        }
        if self._step_seconds is not None:
            time.sleep(self._step_seconds(output))
        return ModelRunnerOutput(
            sampled_token_ids=sampled, forward_ns=time.monotonic_ns() - started
        )

    def _placed(self, request_id: str) -> Placed | None:
        """Returns how far a request is; which blocks it has is no matter here."""
        progress = self._progress.get(request_id)
        if progress is None:
            return None
        computed = 0 if request_id in self._void else progress.num_computed_tokens
        return Placed(range(progress.num_computed_tokens), computed)

    def _apply(self, output: SchedulerOutput) -> None:
        self._void -= output.preempted_req_ids | output.finished_req_ids
        for request_id in output.preempted_req_ids:
            if self._progress.pop(request_id, None) is None:
                raise BatchError(request_id, "was preempted but is not in the batch")
        for request_id in output.finished_req_ids:
            self._progress.pop(request_id, None)  # it may never have run
        for new in output.scheduled_new_reqs:
            known = self._progress.get(new.request_id)
            if known is not None and not 0 < new.num_computed_tokens <= known.num_computed_tokens:
                raise BatchError(new.request_id, "came as new but is in the batch")
            num_prompt_tokens = len(new.prompt_token_ids)
            self._progress[new.request_id] = _Progress(
                num_prompt_tokens,
                num_prompt_tokens + len(new.output_token_ids),
                new.num_computed_tokens,
            )
        for cached in output.scheduled_cached_reqs:
            self._apply_cached(cached)

    def _apply_cached(self, cached: CachedRequestData) -> None:
        if cached.resumed:
            if cached.all_token_ids is None:
                raise BatchError(cached.request_id, "was resumed without its tokens")
            num_tokens = len(cached.all_token_ids)
            self._progress[cached.request_id] = _Progress(
                num_tokens - cached.num_output_tokens, num_tokens, cached.num_computed_tokens
            )
            return
        progress = self._progress.get(cached.request_id)
        if progress is None:
            raise BatchError(cached.request_id, "is scheduled as running but is not in the batch")
        if cached.request_id in self._void:  # the scheduler says how much of it stays
            self._void.discard(cached.request_id)
            progress.num_computed_tokens = cached.num_computed_tokens
            progress.num_tokens = progress.num_prompt_tokens + cached.num_output_tokens
            progress.num_tokens -= len(cached.new_token_ids)
        progress.num_tokens += len(cached.new_token_ids)
        if progress.num_computed_tokens != cached.num_computed_tokens:
            raise BatchError(
                cached.request_id,
                f"has {cached.num_computed_tokens} computed tokens for the scheduler but "
                f"{progress.num_computed_tokens} here",
            )

    def _advance(self, request_id: str, num_scheduled: int) -> int | None:
        progress = self._progress.get(request_id)
        if progress is None:
            raise BatchError(request_id, "is scheduled but is not in the batch")
        progress.num_computed_tokens += num_scheduled
        if progress.num_computed_tokens < progress.num_tokens:
            return None
        if progress.num_computed_tokens > progress.num_tokens:
            raise BatchError(
                request_id,
                f"was scheduled up to token {progress.num_computed_tokens} but has only "
                f"{progress.num_tokens}",
            )
        token = self._script(request_id, progress.num_tokens - progress.num_prompt_tokens)
        progress.num_tokens += 1
        return token
