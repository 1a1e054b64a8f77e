"""What the bodies of `/v1/completions` and `/v1/chat/completions` have in common, and its checks.

Fields have OpenAI's names, and vLLM's where OpenAI has none. Every field is checked and nothing
silently ignored: one that is known but not built is accepted at the value that changes nothing, and
refused at any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.sampling import SamplingParams
from engine.server.api_error import bad_request
from engine.server.structured_fields import read_structured_outputs

MAX_SEED = 2**63 - 1
MAX_INT32 = 2**31 - 1

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (False, None),
    "bad_words": ([], None),
    "prompt_logprobs": (None,),
    "skip_special_tokens": (True, None),
}
"""Fields that are known but not built, with the values at which they change nothing."""

DEFAULT_TEMPERATURE = 1.0

MAX_N = 128
"""Choices of one prompt, as OpenAI limits them."""

MAX_DIGITS = 18
"""Of a token id; there are none so long."""

Number = Annotated[float, Field(allow_inf_nan=False)]


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool = False


class GenerationBody(BaseModel):
    """The JSON fields of any request for text; `stop` comes in several shapes.

    The keys of `logit_bias` are token ids, as texts.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    n: int | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: int | None = None
    min_p: Number | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = None
    logit_bias: dict[str, Number] | None = None
    seed: Annotated[int, Field(ge=-MAX_SEED, le=MAX_SEED)] | None = None
    stop: Any = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    response_format: Any = None
    structured_outputs: Any = None
    priority: Annotated[int, Field(gt=-MAX_INT32, le=MAX_INT32)] = 0
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    user: str | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def num_choices(self) -> int:
        """How many answers each prompt is to have.

        Raises:
            ApiError: 400, so many are none, or too many.
        """
        num_choices = 1 if self.n is None else self.n
        if not 1 <= num_choices <= MAX_N:
            raise bad_request(f"n is {num_choices}: it must lie between 1 and {MAX_N}", "n")
        return num_choices

    def sampling(self, max_tokens: int, logprobs: int | None = None) -> SamplingParams:
        """Returns how the engine is to choose tokens.

        Raises:
            ApiError: 400, a value is out of its range.
        """
        try:
            return SamplingParams(
                max_tokens=max_tokens,
                min_tokens=self.min_tokens,
                temperature=DEFAULT_TEMPERATURE if self.temperature is None else self.temperature,
                top_p=1.0 if self.top_p is None else self.top_p,
                top_k=0 if self.top_k in (None, -1) else self.top_k,
                min_p=self.min_p or 0.0,
                presence_penalty=self.presence_penalty or 0.0,
                frequency_penalty=self.frequency_penalty or 0.0,
                repetition_penalty=1.0
                if self.repetition_penalty is None
                else self.repetition_penalty,
                logit_bias=_read_biases(self.logit_bias or {}),
                logprobs=logprobs,
                structured_outputs=read_structured_outputs(
                    self.response_format, self.structured_outputs
                ),
                seed=self.seed,
                stop=_read_stops(self.stop),
                include_stop_str_in_output=self.include_stop_str_in_output,
                stop_token_ids=tuple(self.stop_token_ids or ()),
                ignore_eos=self.ignore_eos,
            )
        except ValueError as error:
            raise bad_request(str(error), str(error).split(maxsplit=1)[0]) from None


Body = TypeVar("Body", bound=GenerationBody)


def read_body(raw: bytes, kind: type[Body], neutral: Mapping[str, tuple[Any, ...]]) -> Body:
    """Returns the fields of a request, each of the right type.

    Args:
        neutral: fields of this kind that are not built, beside those of all kinds.

    Raises:
        ApiError: 400, with the field that is wrong and what would be right.
    """
    body = _validate(_drop_neutral(_load_object(raw), {**NEUTRAL_VALUES, **neutral}), kind)
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options is only allowed with stream: true", "stream_options")
    return body


def _load_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
        if b"\\u" in raw or b"\xed" in raw:  # only there can half a surrogate pair be
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise bad_request(f"the body has {half!r}, half a surrogate pair: it is no text") from None
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply: a request is one flat object") from None
    if not isinstance(body, dict):
        raise bad_request(f"the body is a JSON {type(body).__name__}: it must be an object")
    return body


def _drop_neutral(
    body: dict[str, Any], neutral_values: Mapping[str, tuple[Any, ...]]
) -> dict[str, Any]:
    """Returns the body without fields that are not built, once they are seen to change nothing."""
    for name, neutral in neutral_values.items():
        if name in body and body[name] not in neutral:
            raise bad_request(f"{name} is not supported: leave it out", name)
    return {name: value for name, value in body.items() if name not in neutral_values}


def _validate(body: dict[str, Any], kind: type[Body]) -> Body:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise bad_request(f"{name} is not a field of this API: leave it out", name) from None
        raise bad_request(f"{name}: {first['msg']}", name) from None


def _read_stops(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise bad_request("stop must be a text or a list of texts, none of them empty", "stop")
    return tuple(stops)


def _read_biases(biases: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """Returns pairs of token id and bias; JSON's keys are texts, and these have to be numbers."""
    for key in biases:
        if not (key.isascii() and key.isdecimal() and len(key) <= MAX_DIGITS):
            raise bad_request(
                f"logit_bias has the key {key[:MAX_DIGITS]!r}: each must be a token id",
                "logit_bias",
            )
    return tuple({int(key): bias for key, bias in biases.items()}.items())
