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

MAX_SEED = 2**63 - 1
MAX_INT32 = 2**31 - 1

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "n": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "repetition_penalty": (1, None),
    "logit_bias": (None, {}),
    "min_p": (0, None),
}
"""Fields that are known but not built, with the values at which they change nothing."""

DEFAULT_TEMPERATURE = 1.0


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool = False


class GenerationBody(BaseModel):
    """The JSON fields of any request for text; `stop` comes in several shapes."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = None
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

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, max_tokens: int) -> SamplingParams:
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
                seed=self.seed,
                stop=_read_stops(self.stop),
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
