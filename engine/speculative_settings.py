"""`--speculative-config`: who guesses next tokens, and how many; keys and defaults are vLLM's.

Source: vLLM 0.32, `SpeculativeConfig`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from engine.config import ConfigError, SpeculationConfig

Method = Literal["ngram", "draft_model"]
DraftSampleMethod = Literal["coupled", "greedy", "probabilistic"]

FLAG = "--speculative-config"
MOST_DRAFTS = 128
"""vLLM's limit."""
DEFAULT_LOOKUP = 5
"""Tokens of an n-gram, the shortest and the longest, where neither is set."""

_WHOLE_NUMBERS = ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min")
_OF_METHOD = {
    "prompt_lookup_max": "ngram",
    "prompt_lookup_min": "ngram",
    "model": "draft_model",
    "draft_sample_method": "draft_model",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeSettings:
    """Who drafts, and how many tokens.

    `prompt_lookup_min` and `prompt_lookup_max` bound the n-grams that are looked up; one that is
    not set is as the other, and both are 5 where neither is. `model` is the draft model's
    checkpoint, `draft_sample_method` how it chooses (coupled, which vLLM has not; see
    `runner.model_drafter`).

    Raises:
        ConfigError: a value cannot be used, or belongs to the other method.
    """

    method: Method
    num_speculative_tokens: int
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None
    model: Path | None = None
    draft_sample_method: DraftSampleMethod | None = None

    def __post_init__(self) -> None:
        _require_choice("method", self.method, get_args(Method))
        for name in _WHOLE_NUMBERS:
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_DRAFTS:
                raise ConfigError(
                    f"{name} is {value} in {FLAG}: it must lie between 1 and {MOST_DRAFTS}"
                )
        for name, method in _OF_METHOD.items():
            if getattr(self, name) is not None and self.method != method:
                raise ConfigError(
                    f"{name} is set in {FLAG}, but belongs to method {method!r} and not to "
                    f"{self.method!r}: leave it out"
                )
        if self.draft_sample_method is not None:
            _require_choice(
                "draft_sample_method", self.draft_sample_method, get_args(DraftSampleMethod)
            )
        if self.method == "draft_model" and self.model is None:
            raise ConfigError(f"method is 'draft_model' in {FLAG}: say with which model")
        shortest, longest = self.lookup
        if shortest > longest:
            raise ConfigError(
                f"prompt_lookup_min is {shortest} in {FLAG}: it must be at most "
                f"prompt_lookup_max ({longest})"
            )

    @property
    def lookup(self) -> tuple[int, int]:
        """Tokens of the shortest and of the longest n-gram that is looked up."""
        shortest, longest = self.prompt_lookup_min, self.prompt_lookup_max
        return (
            shortest or longest or DEFAULT_LOOKUP,
            longest or shortest or DEFAULT_LOOKUP,
        )

    def config(self) -> SpeculationConfig:
        """Returns what the scheduler has to know.

        A draft model writes KV of its drafts behind the scheduled tokens, and its first pass takes
        one token more a request than the step: the newest.
        """
        has_kv = self.method == "draft_model"
        return SpeculationConfig(
            method=self.method,
            num_speculative_tokens=self.num_speculative_tokens,
            num_lookahead_tokens=self.num_speculative_tokens if has_kv else 0,
            draft_slots_per_request=1 if has_kv else 0,
        )


def parse_speculative_config(text: str) -> SpeculativeSettings:
    """Returns the settings of the flag's JSON object.

    Raises:
        ConfigError: it is no such object; the message says what is wrong.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{FLAG} is no JSON ({error}): {text}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{FLAG} is {text}: it must be a JSON object")
    return SpeculativeSettings(**_checked(values))


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    known = [f.name for f in fields(SpeculativeSettings)]
    if unknown := sorted(values.keys() - known):
        raise ConfigError(f"{FLAG} has {', '.join(unknown)}: this engine knows {', '.join(known)}")
    found = {name: value for name, value in values.items() if value is not None}
    if "method" not in found and "model" in found:
        found["method"] = "draft_model"
    if missing := [name for name in ("method", "num_speculative_tokens") if name not in found]:
        raise ConfigError(f"{FLAG} lacks {', '.join(missing)}")
    for name, value in found.items():
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not (is_number if name in _WHOLE_NUMBERS else isinstance(value, str)):
            kind = "a whole number" if name in _WHOLE_NUMBERS else "a text"
            raise ConfigError(f"{name} is {json.dumps(value)} in {FLAG}: it must be {kind}")
    if "model" in found:
        found["model"] = Path(found["model"])
    return found


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(
            f"{name} is {value!r} in {FLAG}: choose {', '.join(choices[:-1])} or {choices[-1]}"
        )
