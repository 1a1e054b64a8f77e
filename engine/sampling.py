"""How a request's next token is chosen, and when it has enough of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.structured_output.wishes import StructuredOutputKind, complaint_about

MAX_BIAS = 100

RANGES = (
    ("temperature", 0, 2),
    ("min_p", 0, 1),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
)
"""Numbers that lie between two others, as OpenAI's API and vLLM have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """What an output has to look like: of which kind, and its text.

    `spec` is a JSON schema as JSON text, a regular expression, a JSON list of texts (choice), a
    grammar in EBNF or Lark, or nothing (json_object: any JSON object).

    Raises:
        ValueError: the schema cannot be enforced, or there is no choice.
    """

    kind: StructuredOutputKind
    spec: str = ""

    def __post_init__(self) -> None:
        complaint = complaint_about(self.kind, self.spec)
        if complaint is not None:
            raise ValueError(complaint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of one request, under the OpenAI API's and vLLM's names.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 keep all tokens. `seed` makes the request's
    draws repeatable whatever else is in the batch. `stop` are strings that end the text, in front
    of them or, with `include_stop_str_in_output`, behind; `stop_token_ids` are tokens that do.

    `min_p` drops tokens less likely than that share of the likeliest one. Penalties make tokens
    less likely that have been there: presence and frequency count outputs, repetition counts the
    prompt too. `logit_bias` is added to the logits of tokens, as pairs. `logprobs` asks for the log
    probability of each output and of so many of the likeliest (0: of the output alone; None: none).
    `structured_outputs` constrains what may be said.

    Raises:
        ValueError: a value is out of its range.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}: it must be 1 or more")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(
                f"min_tokens is {self.min_tokens}: it must lie between 0 and "
                f"max_tokens ({self.max_tokens})"
            )
        if self.min_tokens and self.structured_outputs is not None:
            raise ValueError(
                f"min_tokens is {self.min_tokens} with structured output: what it must look like "
                "says where it ends; leave min_tokens out"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: it must be 0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}: it must be above 0 and at most 1")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(
                f"repetition_penalty is {self.repetition_penalty}: it must be above 0 (1 is off)"
            )
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError(f"logprobs is {self.logprobs}: it must be 0 or more")
        for name, least, most in RANGES:
            if not least <= getattr(self, name) <= most:  # NaN too
                raise ValueError(
                    f"{name} is {getattr(self, name)}: it must lie between {least} and {most}"
                )
        for token_id, bias in self.logit_bias:
            if not -MAX_BIAS <= bias <= MAX_BIAS:
                raise ValueError(
                    f"logit_bias of token {token_id} is {bias}: it must lie between "
                    f"-{MAX_BIAS} and {MAX_BIAS}"
                )
