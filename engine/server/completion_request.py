"""Reads the body of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.sampling import SamplingParams
from engine.server.api_error import bad_request
from engine.server.request_body import GenerationBody, read_body

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "echo": (False, None),
    "suffix": (None, ""),
}
"""Fields of completions that are known but not built; see `request_body`."""

DEFAULT_MAX_TOKENS = 16


class CompletionBody(GenerationBody):
    """The JSON of a request. `prompt` comes in several shapes, read by `_read_prompts`."""

    prompt: Any = None
    logprobs: int | None = None
    best_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A request that makes sense in itself. `prompts` are texts or lists of token ids."""

    model: str | None
    prompts: Sequence[str | list[int]]
    num_choices: int
    sampling: SamplingParams
    priority: int
    stream: bool
    include_usage: bool
    return_token_ids: bool


def parse_completion_request(raw: bytes) -> CompletionRequest:
    """Returns what the client asks for.

    Raises:
        ApiError: 400, with the field that is wrong and what would be right.
    """
    body = read_body(raw, CompletionBody, NEUTRAL_VALUES)
    if body.best_of not in (None, body.num_choices):
        raise bad_request(
            f"best_of is {body.best_of} but n is {body.num_choices}: nothing is chosen among "
            "choices here, leave it out",
            "best_of",
        )
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    return CompletionRequest(
        model=body.model,
        prompts=_read_prompts(body.prompt),
        num_choices=body.num_choices,
        sampling=body.sampling(max_tokens, body.logprobs),
        priority=body.priority,
        stream=body.stream,
        include_usage=body.include_usage,
        return_token_ids=body.return_token_ids,
    )


def _read_prompts(prompt: Any) -> list[str | list[int]]:
    """Returns one entry a choice, from a text, a list of ids, or a list of either."""
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if _are_token_ids(prompt):
            return [prompt]
        if all(isinstance(one, str) or (one and _are_token_ids(one)) for one in prompt):
            return prompt
    raise bad_request(
        "prompt must be a text, a list of token ids, or a list of texts or of lists of token ids; "
        "none of the lists may be empty",
        "prompt",
    )


def _are_token_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value)
