"""How a request's next token is chosen, and when it has enough of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of one request, under the OpenAI API's and vLLM's names.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 keep all tokens. `seed` makes the request's
    draws repeatable whatever else is in the batch. `stop` are strings that end the text;
    `stop_token_ids` are tokens that do.

    Raises:
        ValueError: a value is out of its range.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}: it must be 1 or more")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise ValueError(
                f"min_tokens is {self.min_tokens}: it must lie between 0 and "
                f"max_tokens ({self.max_tokens})"
            )
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}: it must be 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}: it must be above 0 and at most 1")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: it must be 0 (all tokens) or more")
