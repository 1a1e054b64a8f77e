"""The engine without a server: a list of prompts in, their completions out, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.core import EngineCore, NewRequest
from engine.loading import load_engine
from engine.sampling import SamplingParams
from engine.settings import EngineSettings
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock
from telemetry.vocabulary import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What became of one prompt."""

    token_ids: tuple[int, ...]
    finish_reason: FinishReason


class LLM:
    """An engine that is called, not asked over a network.

    Prompts are token ids; text and stop strings are the server's business.

    Raises:
        ValueError: the checkpoint or a setting cannot be used.
    """

    def __init__(
        self,
        settings: EngineSettings | None = None,
        *,
        recorder: Recorder | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        settings = settings or EngineSettings()
        recorder = recorder or NullRecorder()
        loaded = load_engine(
            settings, phase_hook=lambda phase: recorder.enter_phase(self.core.num_steps, phase)
        )
        self.core = EngineCore(
            loaded.config,
            loaded.runner,
            recorder=recorder,
            clock=clock or RunClock.start().now,
            model_name=settings.model_name,
            eos_token_ids=loaded.eos_token_ids,
        )
        self._num_requests = 0

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingParams | Sequence[SamplingParams],
    ) -> list[Completion]:
        """Runs all prompts to their ends, together, and returns their completions in order.

        Args:
            prompts: token ids of each.
            sampling: one for all, or one for each.

        Raises:
            ValueError: a prompt can never fit; none has been started then.
            RuntimeError: the engine comes to a standstill (only with `allow_oversize`).
        """
        each = [sampling] * len(prompts) if isinstance(sampling, SamplingParams) else sampling
        if len(each) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts came with {len(each)} sampling parameters")
        names = [self._add(prompt, one) for prompt, one in zip(prompts, each, strict=True)]
        tokens: dict[str, list[int]] = {name: [] for name in names}
        ends: dict[str, FinishReason] = {}
        while len(ends) < len(names):
            output, results = self.core.step()
            if not output.total_num_scheduled_tokens and not results:
                self.core.abort_all(FinishReason.abort_api)
                raise RuntimeError("requests wait for more KV blocks than there are: none can run")
            for result in results:
                tokens[result.request_id] += result.new_token_ids
                if result.finish_reason is not None:
                    ends[result.request_id] = result.finish_reason
        return [
            Completion(token_ids=tuple(tokens[name]), finish_reason=ends[name]) for name in names
        ]

    def _add(self, prompt: Sequence[int], sampling: SamplingParams) -> str:
        name = f"llm-{self._num_requests}"
        self._num_requests += 1
        refusal = self.core.add_request(
            NewRequest(request_id=name, prompt_token_ids=prompt, sampling=sampling)
        )
        if refusal is not None:
            self.core.abort_all(FinishReason.abort_api)
            raise ValueError(refusal.error)
        return name
