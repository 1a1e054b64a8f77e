"""One request's place in its grammar: which tokens may come next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.structured_output.bitmask import ALL_BITS

Words = npt.NDArray[np.int32]


class RequestGrammar:
    """A grammar on its way through one request's outputs.

    It belongs to the request: a preemption takes nothing from it, for the outputs are kept. Only
    the step loop touches it.

    Args:
        key: what says which grammars are equal.

    Invariants:
        between two steps it has taken in exactly the outputs that the request has.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._compiled: Any = None
        self._matcher: Any = None

    @property
    def key(self) -> str:
        """What says which grammars are equal."""
        return self._key

    def begin(self, compiled: Any) -> None:
        """Starts at the beginning of a compiled grammar."""
        from xgrammar import GrammarMatcher

        self._compiled = compiled
        self._matcher = GrammarMatcher(compiled)

    def accept(self, token_ids: Sequence[int]) -> bool:
        """Takes in outputs; returns whether the grammar allows them.

        What comes behind the end of the text (a request that ignores it is given more of the same)
        is of no account.
        """
        return all(self._matcher.is_terminated() or self._take(token) for token in token_ids)

    def accepted_prefix(self, token_ids: list[int]) -> list[int]:
        """Returns the drafts up to the first one that the grammar refuses."""
        num_taken = 0
        for token_id in token_ids:
            if not self._take_draft(token_id):
                break
            num_taken += 1
        self._go_back(num_taken)
        return token_ids[:num_taken]

    def fill(self, words: Words, row: int, drafts: Sequence[int], end_bits: Words) -> None:
        """Writes which tokens may come next, and which behind each draft.

        Args:
            words: `[num_rows, ceil(vocab_size / 32)]`; rows from `row` on are written, one and one
                more a draft. Rows behind a draft that the grammar refuses are never looked at, and
                let all through.
            end_bits: the row of a text that is complete.
        """
        words[row + 1 : row + 1 + len(drafts)] = ALL_BITS
        self._fill_row(words, row, end_bits)
        num_taken = 0
        for draft in drafts:
            if not self._take_draft(draft):
                break
            num_taken += 1
            self._fill_row(words, row + num_taken, end_bits)
        self._go_back(num_taken)

    def _fill_row(self, words: Words, row: int, end_bits: Words) -> None:
        if self._matcher.is_terminated():
            words[row] = end_bits
        else:
            self._matcher.fill_next_token_bitmask(words, row)

    def _take(self, token_id: int) -> bool:
        """Goes on by a token if it is allowed."""
        return bool(self._matcher.accept_token(token_id))

    def _take_draft(self, token_id: int) -> bool:
        """Goes on by a draft if it is allowed; a placeholder (-1) never is.

        Nor is a token without text, about which xgrammar would complain aloud.
        """
        if token_id < 0 or token_id in self._without_text or self._matcher.is_terminated():
            return False
        return self._take(token_id)

    @cached_property
    def _without_text(self) -> frozenset[int]:
        return frozenset(self._compiled.tokenizer_info.special_token_ids)

    def _go_back(self, num_tokens: int) -> None:
        if num_tokens:
            self._matcher.rollback(num_tokens)
