"""The engine without a server: prompts in, their completions out, in one process.

with LLM("DIRECTORY", max_num_seqs=64) as llm:
    for result in llm.generate(["Once upon a time"], SamplingParams(max_tokens=32)):
        print(result.text)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.core import NewRequest
from engine.identity import LifeEvents
from engine.lora.adapter_error import AdapterError
from engine.lora.store import AdapterVersion
from engine.offline.batch import BatchRun, Choice
from engine.offline.flags import read_settings
from engine.offline.progress import progress_bar
from engine.offline.prompts import Message, Prompt, PromptReader, TokenIds
from engine.offline.results import Completion, PromptResult, RequestMetrics
from engine.sampling import SamplingParams
from engine.settings import EngineSettings
from engine.starting import start_engine
from engine.text.tokenizer import Tokenizer
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import RunClock

__all__ = ["LLM", "Completion", "PromptResult", "RequestMetrics", "SamplingParams"]

NS = 1_000_000_000


class LLM:
    """An engine that is called, not asked over a network.

    Args:
        model: directory of a checkpoint, a GGUF file, or all settings; None is the tiny Llama.
        chat_template: source of a Jinja template for `chat`; None is the model's own.
        recorder: told of each step and request; closed with the engine.
        clock: the recorder's.
        flags: settings by vLLM's names, as of `stepscope serve` (`max_num_seqs=64`); its JSON flags
            may be given as mappings.

    Raises:
        ValueError: the checkpoint or a setting cannot be used.
        TypeError: a flag is none.
    """

    def __init__(
        self,
        model: EngineSettings | Path | str | None = None,
        *,
        chat_template: str | None = None,
        recorder: Recorder | None = None,
        clock: RunClock | None = None,
        **flags: Any,
    ) -> None:
        settings = read_settings(model, flags)
        self._recorder = recorder or NullRecorder()
        self._clock = clock or RunClock.start()
        self._life = LifeEvents(self._recorder, self._clock.now)
        self._num_requests = 0
        self._is_closed = False
        try:
            started = start_engine(settings, self._recorder, self._life, self._clock)
        except BaseException:
            self._recorder.close()
            raise
        self.core = started.core
        self.adapters = started.loaded.adapters
        """The LoRA adapters; None where none can be served."""
        directory = started.loaded.model_directory
        self.tokenizer = None if directory is None else Tokenizer.load(directory)
        """The model's tokenizer; None where it has none: prompts are tokens then."""
        self._prompts = PromptReader(
            self.tokenizer, vocab_size=started.loaded.vocab_size, chat_template=chat_template
        )

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stores what a KV connector is to keep, ends its threads, and closes the recorder.

        Nothing may be asked of the engine afterwards.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.core.save_what_is_left()
        self.core.close()
        self._life.stopped("closed", step=self.core.num_steps)
        self._recorder.close()

    # ------------------------------------------------------------------------------------- asking

    def generate(
        self,
        prompts: str | TokenIds | Sequence[str | TokenIds],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        n: int = 1,
        adapter: str | Sequence[str | None] | None = None,
        use_tqdm: bool | None = None,
    ) -> list[PromptResult]:
        """Runs all prompts to their ends, together, and returns their results in order.

        Args:
            prompts: texts, or token ids; one may stand alone.
            sampling: one for all, or one for each; without it 16 tokens, greedily.
            n: answers to each prompt; with a seed, each has one of its own, counted up.
            adapter: name of a LoRA adapter, one for all, or one (or None) for each.
            use_tqdm: whether to show a progress bar; None: where somebody looks at a terminal.

        Raises:
            ValueError: a prompt has no tokens, can never fit, or is text and the model has no
                tokenizer, or an adapter is not there; none has been started.
            RuntimeError: the engine comes to a standstill (only with `allow_oversize`).
        """
        listed: Sequence[Any] = [prompts] if _is_one(prompts) else prompts
        read = [self._prompts.read(prompt) for prompt in listed]
        return self._run(read, sampling, n, adapter, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        n: int = 1,
        adapter: str | Sequence[str | None] | None = None,
        use_tqdm: bool | None = None,
        add_generation_prompt: bool = True,
    ) -> list[PromptResult]:
        """Answers conversations as `generate` does prompts; one may stand alone.

        Args:
            messages: each with `role` and `content`.
            add_generation_prompt: let the prompt end with the beginning of an answer.

        Raises:
            ValueError: as `generate`, or the model has no chat template or it refuses.
        """
        listed: Sequence[Any] = (
            [messages] if messages and isinstance(messages[0], Mapping) else messages
        )
        read = [self._prompts.read_chat(each, add_generation_prompt) for each in listed]
        return self._run(read, sampling, n, adapter, use_tqdm)

    # ------------------------------------------------------------------------------------ running

    def _run(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] | None,
        n: int,
        adapter: str | Sequence[str | None] | None,
        use_tqdm: bool | None,
    ) -> list[PromptResult]:
        if n < 1:
            raise ValueError(f"n is {n}: it must be 1 or more")
        samplings = _for_each(prompts, sampling or SamplingParams(), "sampling parameters")
        adapters = _for_each(prompts, adapter, "adapters")
        started_ts = self._clock.now()
        requests = (
            self._request(token_ids, _for_choice(each, choice), name)
            for (_, token_ids), each, name in zip(prompts, samplings, adapters, strict=True)
            for choice in range(n)
        )
        with progress_bar(len(prompts) * n, use_tqdm) as moved:
            run = BatchRun(self.core, requests, self.tokenizer, self._clock.now, moved)
            run.run()
        choices = list(run.choices.values())
        return [
            self._result(text, token_ids, choices[at * n : at * n + n], started_ts)
            for at, (text, token_ids) in enumerate(prompts)
        ]

    def _result(
        self,
        text: str | None,
        token_ids: tuple[int, ...],
        choices: Sequence[Choice],
        started_ts: int,
    ) -> PromptResult:
        has_text = self.tokenizer is not None
        firsts = [each.first_token_ts for each in choices if each.first_token_ts is not None]
        return PromptResult(
            prompt=text,
            prompt_token_ids=token_ids,
            outputs=tuple(each.completion(has_text=has_text) for each in choices),
            metrics=RequestMetrics(
                num_prompt_tokens=len(token_ids),
                num_output_tokens=sum(len(each.token_ids) for each in choices),
                num_preemptions=sum(each.num_preemptions for each in choices),
                time_to_first_token_seconds=(min(firsts) - started_ts) / NS if firsts else None,
                e2e_seconds=(max(each.ended_ts or started_ts for each in choices) - started_ts)
                / NS,
            ),
        )

    def _request(
        self, token_ids: TokenIds, sampling: SamplingParams, adapter: str | None
    ) -> NewRequest:
        version = self._bring(adapter)
        name = f"llm-{self._num_requests}"
        self._num_requests += 1
        return NewRequest(
            request_id=name,
            prompt_token_ids=token_ids,
            sampling=sampling,
            adapter=None if version is None else version.adapter,
            adapter_key=None if version is None else version.cache_key,
        )

    def _bring(self, adapter: str | None) -> AdapterVersion | None:
        """Returns an adapter that is in host memory."""
        if adapter is None:
            return None
        if self.adapters is None:
            raise AdapterError(f"adapter {adapter!r} needs enable_lora")
        return self.adapters.bring(adapter, in_use=self.core.adapters_in_use())


def _is_one(prompts: object) -> bool:
    """Whether this is a prompt, and not a list of them."""
    if isinstance(prompts, str):
        return True
    return isinstance(prompts, Sequence) and bool(prompts) and isinstance(prompts[0], int)


def _for_each(prompts: Sequence[object], given: Any, what: str) -> list[Any]:
    """Returns one of what was given for each prompt: the same for all, or each its own.

    Raises:
        ValueError: there are more or fewer than prompts.
    """
    if given is None or isinstance(given, (str, SamplingParams)):
        return [given] * len(prompts)
    if len(given) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts came with {len(given)} {what}")
    return list(given)


def _for_choice(sampling: SamplingParams, choice: int) -> SamplingParams:
    """Returns how one of a prompt's choices is sampled: its seed is counted up."""
    if sampling.seed is None or not choice:
        return sampling
    return replace(sampling, seed=sampling.seed + choice)
