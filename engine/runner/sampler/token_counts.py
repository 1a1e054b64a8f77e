"""Which tokens have been in a text, and how often: kept as the text grows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]


class TokenCounts:
    """The distinct tokens of one request's text, and how often each was an output.

    Args:
        with_prompt: whether the prompt's tokens are listed too; as outputs they do not count.
    """

    def __init__(self, *, with_prompt: bool) -> None:
        self._with_prompt = with_prompt
        self._num_seen = 0
        self._places: dict[int, int] = {}
        self._token_ids = array("q")
        self._counts = array("q")

    def grow(self, known_token_ids: npt.NDArray[np.int32], num_prompt_tokens: int) -> None:
        """Takes in what a text, prompt and outputs, has more than the last time."""
        if not self._num_seen:
            if self._with_prompt:
                self._list(np.unique(known_token_ids[:num_prompt_tokens]).tolist())
            self._num_seen = num_prompt_tokens
        for token_id in known_token_ids[self._num_seen :].tolist():
            self._count(token_id)
        self._num_seen = len(known_token_ids)

    def with_drafts(self, drafts: Iterable[int]) -> TokenCounts:
        """Returns what would be counted if these were outputs too."""
        other = TokenCounts(with_prompt=self._with_prompt)
        other._num_seen = self._num_seen
        other._places = dict(self._places)
        other._token_ids, other._counts = self._token_ids[:], self._counts[:]
        for token_id in drafts:
            if token_id >= 0:  # behind a placeholder nothing is kept anyway
                other._count(token_id)
        return other

    def columns(self) -> tuple[Int64s, Int64s]:
        """Returns the tokens, and how often each was an output: `[num_distinct]` both."""
        return np.array(self._token_ids), np.array(self._counts)

    def _list(self, token_ids: list[int]) -> None:
        self._places.update(zip(token_ids, range(len(token_ids)), strict=True))
        self._token_ids.extend(token_ids)
        self._counts.extend([0] * len(token_ids))

    def _count(self, token_id: int) -> None:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._token_ids):
            self._token_ids.append(token_id)
            self._counts.append(0)
        self._counts[place] += 1
