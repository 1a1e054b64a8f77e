"""What `LLM` gives back: a result a prompt, with a completion for each choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.scheduler.output import TokenLogprobs
from telemetry.vocabulary import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer to a prompt.

    `text` is None where the model has no tokenizer. `logprobs` has one entry a token where they
    were asked for. `error` says why where the finish reason is that.
    """

    text: str | None
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: Sequence[TokenLogprobs] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetrics:
    """What a prompt's answers took. Times run from when it was handed in; None: never came.

    `num_preemptions` is of all its choices together.
    """

    num_prompt_tokens: int
    num_output_tokens: int
    num_preemptions: int
    time_to_first_token_seconds: float | None
    e2e_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResult:
    """What became of one prompt; `prompt` is its text, None where it was given as tokens.

    The properties are those of its first answer, for whoever asked for one.
    """

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[Completion, ...]
    metrics: RequestMetrics = field(compare=False)

    @property
    def text(self) -> str | None:
        """What the first answer says."""
        return self.outputs[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The first answer's tokens."""
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first answer ended."""
        return self.outputs[0].finish_reason

    @property
    def error(self) -> str | None:
        """What went wrong with the first answer."""
        return self.outputs[0].error
