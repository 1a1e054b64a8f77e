"""Reads the body of `/v1/completions`: every field checked, nothing silently ignored.

Fields have OpenAI's names, and vLLM's where OpenAI has none. A field that is known but not built is
accepted at the value that changes nothing, and refused at any other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.sampling import SamplingParams
from engine.server.api_error import bad_request

MAX_SEED = 2**63 - 1
MAX_INT32 = 2**31 - 1
NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "n": (1, None),
    "best_of": (1, None),
    "echo": (False, None),
    "logprobs": (None,),
    "suffix": (None, ""),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "repetition_penalty": (1, None),
    "logit_bias": (None, {}),
    "min_p": (0, None),
}
"""Fields that are known but not built, with the values at which they change nothing."""


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool = False


class CompletionBody(BaseModel):
    """The JSON of a request. `prompt` and `stop` come in several shapes, read by `parse`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = None
    prompt: Any = None
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: Annotated[float, Field(allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(allow_inf_nan=False)] | None = None
    top_k: int | None = None
    seed: Annotated[int, Field(ge=-MAX_SEED, le=MAX_SEED)] | None = None
    stop: Any = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    priority: Annotated[int, Field(gt=-MAX_INT32, le=MAX_INT32)] = 0
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A request that makes sense in itself. `prompts` are texts or lists of token ids."""

    model: str | None
    prompts: Sequence[str | list[int]]
    sampling: SamplingParams
    priority: int
    stream: bool
    include_usage: bool
    return_token_ids: bool


DEFAULT_MAX_TOKENS = 16
DEFAULT_TEMPERATURE = 1.0


def parse_completion_request(raw: bytes) -> CompletionRequest:
    """Returns what the client asks for.

    Raises:
        ApiError: 400, with the field that is wrong and what would be right.
    """
    body = _validate(_drop_neutral(_load_object(raw)))
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options is only allowed with stream: true", "stream_options")
    return CompletionRequest(
        model=body.model,
        prompts=_read_prompts(body.prompt),
        sampling=_sampling(body),
        priority=body.priority,
        stream=body.stream,
        include_usage=body.stream_options is not None and body.stream_options.include_usage,
        return_token_ids=body.return_token_ids,
    )


def _load_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply: a request is one flat object") from None
    if not isinstance(body, dict):
        raise bad_request(f"the body is a JSON {type(body).__name__}: it must be an object")
    return body


def _drop_neutral(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the body without fields that are not built, once they are seen to change nothing."""
    for name, neutral in NEUTRAL_VALUES.items():
        if name in body and body[name] not in neutral:
            raise bad_request(f"{name} is not supported: leave it out", name)
    return {name: value for name, value in body.items() if name not in NEUTRAL_VALUES}


def _validate(body: dict[str, Any]) -> CompletionBody:
    try:
        return CompletionBody.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise bad_request(f"{name} is not a field of this API: leave it out", name) from None
        raise bad_request(f"{name}: {first['msg']}", name) from None


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


def _read_stops(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise bad_request("stop must be a text or a list of texts, none of them empty", "stop")
    return tuple(stops)


def _sampling(body: CompletionBody) -> SamplingParams:
    def given(value: Any, default: Any) -> Any:
        return default if value is None else value

    try:
        return SamplingParams(
            max_tokens=given(body.max_tokens, DEFAULT_MAX_TOKENS),
            min_tokens=body.min_tokens,
            temperature=given(body.temperature, DEFAULT_TEMPERATURE),
            top_p=given(body.top_p, 1.0),
            top_k=0 if body.top_k in (None, -1) else body.top_k,
            seed=body.seed,
            stop=_read_stops(body.stop),
            stop_token_ids=tuple(body.stop_token_ids or ()),
            ignore_eos=body.ignore_eos,
        )
    except ValueError as error:
        raise bad_request(str(error), str(error).split(maxsplit=1)[0]) from None
