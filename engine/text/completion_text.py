"""The text of one request: tokens in, text out, until a stop string or the engine ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.sampling import SamplingParams
from engine.text.detokenizer import Detokenizer
from engine.text.stop_strings import StopStrings
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class NewText:
    """What new tokens say.

    Attributes:
        text: to pass on.
        starts: of each token that was used, where it begins in the text so far, in characters.
            Tokens behind the one that completed a stop string are not used.
    """

    text: str
    starts: list[int]


class CompletionText:
    """Detokenizes a request's output and ends it at its stop strings.

    Without a tokenizer there is no text and no stop string is ever found. Text within `min_tokens`
    is passed on unsearched.
    """

    def __init__(self, tokenizer: Tokenizer | None, sampling: SamplingParams) -> None:
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer)
        self._stops = StopStrings(sampling.stop, include=sampling.include_stop_str_in_output)
        self._min_tokens = sampling.min_tokens
        self._num_tokens = 0
        self._num_characters = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string has been found."""
        return self._stops.found

    def push(self, token_ids: Sequence[int], *, is_last: bool) -> NewText:
        """Takes new tokens in; returns what they say."""
        text = ""
        starts = []
        for token_id in token_ids:
            starts.append(self._num_characters)
            text += self._push_one(token_id)
            if self.stopped:
                return NewText(text, starts)
        if is_last and self._detokenizer is not None:
            text += self._stops.push(self._detokenizer.finish())
            text += "" if self.stopped else self._stops.release()
        return NewText(text, starts)

    def _push_one(self, token_id: int) -> str:
        self._num_tokens += 1
        if self._detokenizer is None:
            return ""
        text = self._detokenizer.push((token_id,))
        self._num_characters += len(text)
        if self._num_tokens <= self._min_tokens:
            return text
        return self._stops.push(text)
