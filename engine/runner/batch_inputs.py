"""What one step puts into the model, flat and in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInputs:
    """One step's inputs, flat: all sequences' tokens side by side, decodes first.

    Attributes:
        request_ids: the sequences, in batch order.
        rows: `[num_seqs]`, their rows in the batch.
        token_ids: `[num_tokens]`.
        positions: `[num_tokens]`, place of each token in its sequence.
        slot_mapping: `[num_groups, num_tokens]`, where its K and V go: block * block_size + offset.
        query_start: `[num_seqs + 1]`, first token of each sequence, and the end.
        seq_lens: `[num_seqs]`, keys that each sequence's last token sees.
        block_tables: `[num_groups, num_seqs, most blocks]` int32, padded with the null block, 0.
        sampling_seqs: `[num_sampling]`, the sequences that reach their newest token.
        num_drafts: `[num_sampling]`, how many of their last tokens are drafts.
        draft_token_ids: the drafts of those that have some, by place in the batch; -1 is a
            placeholder, never right.
    """

    request_ids: tuple[str, ...]
    rows: IntArray
    token_ids: IntArray
    positions: IntArray
    slot_mapping: IntArray
    query_start: IntArray
    seq_lens: IntArray
    block_tables: npt.NDArray[np.int32]
    sampling_seqs: IntArray
    num_drafts: IntArray
    draft_token_ids: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def query_lens(self) -> IntArray:
        """`[num_seqs]`, tokens of each sequence in this step."""
        return np.diff(self.query_start)

    @property
    def logits_indices(self) -> IntArray:
        """`[num_rows]`, the tokens whose logits are wanted: the newest and its drafts, in order."""
        last: IntArray = self.query_start[1:][self.sampling_seqs] - 1
        if not self.draft_token_ids:
            return last
        num_rows = 1 + self.num_drafts
        first_row = np.cumsum(num_rows) - num_rows
        within = np.arange(num_rows.sum()) - np.repeat(first_row, num_rows)
        indices: IntArray = np.repeat(last - self.num_drafts, num_rows) + within
        return indices
