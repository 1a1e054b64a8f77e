"""The text of one request: tokens in, text out, until a stop string or the engine ends it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.sampling import SamplingParams
from engine.server.detokenizer import Detokenizer
from engine.server.stop_strings import StopStrings
from engine.server.tokenizer import Tokenizer


class CompletionText:
    """Detokenizes a request's output and ends it at its stop strings.

    Without a tokenizer there is no text and no stop string is ever found. Text within `min_tokens`
    is passed on unsearched.
    """

    def __init__(self, tokenizer: Tokenizer | None, sampling: SamplingParams) -> None:
        self._detokenizer = None if tokenizer is None else Detokenizer(tokenizer)
        self._stops = StopStrings(sampling.stop)
        self._min_tokens = sampling.min_tokens
        self.num_tokens = 0

    @property
    def stopped(self) -> bool:
        """Whether a stop string has been found."""
        return self._stops.found

    def push(self, token_ids: Sequence[int], *, is_last: bool) -> tuple[str, int]:
        """Takes new tokens in.

        Returns:
            The text to pass on, and how many of the tokens were used: those after the one that
            completed a stop string are not.
        """
        text = ""
        for index, token_id in enumerate(token_ids):
            text += self._push_one(token_id)
            if self.stopped:
                return text, index + 1
        if is_last and self._detokenizer is not None:
            text += self._stops.push(self._detokenizer.finish())
            text += "" if self.stopped else self._stops.release()
        return text, len(token_ids)

    def _push_one(self, token_id: int) -> str:
        self.num_tokens += 1
        if self._detokenizer is None:
            return ""
        text = self._detokenizer.push((token_id,))
        if self.num_tokens <= self._min_tokens:
            return text
        return self._stops.push(text)
