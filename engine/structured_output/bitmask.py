"""The tokens that grammars let through in one step, as bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALL_BITS = np.int32(-1)
"""A word that lets all its tokens through."""


@dataclass(frozen=True, slots=True)
class GrammarBitmask:
    """Rows of bits, one for each position that a constrained request samples from.

    Attributes:
        words: `[num_rows, ceil(vocab_size / 32)]` int32; a set bit lets its token through.
        first_row: of each request in the step that a grammar constrains; its other rows, one behind
            each of its drafts, follow.
        fill_ns: how long it took to fill them.
    """

    words: npt.NDArray[np.int32]
    first_row: Mapping[str, int]
    fill_ns: int

    def for_rows(
        self, request_ids: Sequence[str], drafts: Sequence[Sequence[int]]
    ) -> npt.NDArray[np.int32]:
        """Returns the bits of all rows of a step's logits, those of requests without a grammar too.

        Args:
            request_ids: the sequences that are sampled, in the order of their rows.
            drafts: of each of them; there is one more row than drafts.

        Returns:
            `[num_rows, ceil(vocab_size / 32)]`.
        """
        num_rows = len(request_ids) + sum(map(len, drafts))
        words = np.full((num_rows, self.words.shape[1]), ALL_BITS)
        row = 0
        for request_id, its_drafts in zip(request_ids, drafts, strict=True):
            count = 1 + len(its_drafts)
            first = self.first_row.get(request_id)
            if first is not None:
                words[row : row + count] = self.words[first : first + count]
            row += count
        return words
