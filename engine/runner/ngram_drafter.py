"""Drafts without a model: what followed the last time that a text ended like this.

Prompt lookup: the longest run of a request's last tokens that occurs in it before, and of its
occurrences the first, which has most tokens behind it. Texts that repeat their prompt or themselves
(code, summaries, JSON) are guessed well; others cost one comparison of all their tokens.

Source: A. Saxena, "Prompt Lookup Decoding" (2023); the order of choice is vLLM's `ngram`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.runner.batch_inputs import BatchInputs
from engine.runner.drafter import Drafts
from engine.runner.input_batch import InputBatch
from engine.runner.sampler import Sampler

IntArray = npt.NDArray[np.int64]


class NgramDrafter:
    """Looks up the ends of texts in themselves.

    Args:
        num_speculative_tokens: most drafts of a request.
        prompt_lookup_min: shortest run of last tokens that counts as found.
        prompt_lookup_max: longest run that is looked for.
        max_model_len: longest sequence; nothing is guessed beyond it.
    """

    def __init__(
        self,
        *,
        num_speculative_tokens: int,
        prompt_lookup_min: int,
        prompt_lookup_max: int,
        max_model_len: int,
    ) -> None:
        self._num_drafts = num_speculative_tokens
        self._min = prompt_lookup_min
        self._max = prompt_lookup_max
        self._max_model_len = max_model_len

    def propose(self, batch: InputBatch, inputs: BatchInputs, sampler: Sampler) -> Drafts:
        """Returns what followed the longest repeat of each sampling sequence's end."""
        if not len(inputs.sampling_seqs):
            return Drafts({})
        rows = inputs.rows[inputs.sampling_seqs]
        lengths = batch.num_tokens[rows]
        tokens = batch.token_ids[rows, : int(lengths.max())]
        starts = starts_of_drafts(tokens, lengths, shortest=self._min, longest=self._max)
        most = np.minimum(self._num_drafts, self._max_model_len - lengths)
        ends = np.minimum(starts + most, lengths)
        drafts = {}
        for i in np.flatnonzero((starts >= 0) & (most > 0)).tolist():
            name = inputs.request_ids[inputs.sampling_seqs[i]]
            drafts[name] = tokens[i, starts[i] : ends[i]].tolist()
        return Drafts(drafts)


def starts_of_drafts(
    tokens: npt.NDArray[np.int32], lengths: IntArray, *, shortest: int, longest: int
) -> IntArray:
    """Returns `[num_rows]`: where what followed a row's longest repeat begins; -1 is no repeat.

    All rows are looked at together: first the places of their last tokens, then how far each of
    these agrees with the end of its row to the left.

    Args:
        tokens: `[num_rows, width]`; what lies behind a row's length is ignored.
        lengths: `[num_rows]`, tokens of each, 1 or more.
    """
    num_rows, width = tokens.shape
    every = np.arange(num_rows)
    last = tokens[every, lengths - 1]
    found = (tokens == last[:, None]) & (np.arange(width) < (lengths - 1)[:, None])
    row, end = np.nonzero(found)
    agreeing = np.ones(len(row), np.int64)
    still = np.arange(len(row))
    for back in range(1, longest):
        before = end[still] - back
        still, before = still[before >= 0], before[before >= 0]
        same = tokens[row[still], before] == tokens[row[still], lengths[row[still]] - 1 - back]
        still = still[same]
        if not len(still):
            break
        agreeing[still] += 1
    order = np.lexsort((end, -agreeing, row))  # of a row the longest first, of those the first
    best = order[np.unique(row[order], return_index=True)[1]]
    best = best[agreeing[best] >= shortest]
    starts = np.full(num_rows, -1, np.int64)
    starts[row[best]] = end[best] + 1
    return starts
