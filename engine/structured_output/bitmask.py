"""The tokens that grammars let through in one step, as bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


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
