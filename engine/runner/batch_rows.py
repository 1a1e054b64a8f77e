"""The rows of the persistent batch: tokens, block tables and progress of requests, as columns.

Each KV group has block tables of its own. Blocks that a sliding window has passed are given back
without a word: they stay in the table here, and attention does not look at them.

Not responsible for: what the scheduler's deltas mean (`input_batch`), tensors, the model.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine.kv_cache import BlockIds
from engine.runner.batch_error import BatchError
from engine.runner.batch_inputs import BatchInputs

IntArray = npt.NDArray[np.int64]


class BatchRows:
    """Rows of requests: tokens, block tables, progress.

    Args:
        max_num_seqs: rows.
        max_model_len: longest sequence, prompt and outputs.
        block_size: tokens of a KV block, the same in all groups.
        num_groups: KV groups.

    Invariants:
        a row's tokens are `token_ids[row, :num_tokens[row]]`, its blocks in each group
        `block_tables[group, row, :num_blocks[group, row]]` with 0 behind them;
        `num_computed_tokens <= num_tokens`. `num_draft_computed_tokens` is a draft model's, which
        sets it after each step: tokens, and drafts behind them, whose KV it has.
    """

    def __init__(
        self, *, max_num_seqs: int, max_model_len: int, block_size: int, num_groups: int = 1
    ) -> None:
        self.block_size = block_size
        self.num_groups = num_groups
        self.token_ids = np.zeros((max_num_seqs, max_model_len + 1), np.int32)
        max_blocks = -(-max_model_len // block_size)
        self.block_tables = np.zeros((num_groups, max_num_seqs, max_blocks), np.int32)
        self.num_blocks = np.zeros((num_groups, max_num_seqs), np.int64)
        self.num_tokens = np.zeros(max_num_seqs, np.int64)
        self.num_prompt_tokens = np.zeros(max_num_seqs, np.int64)
        self.num_computed_tokens = np.zeros(max_num_seqs, np.int64)
        self.num_draft_computed_tokens = np.zeros(max_num_seqs, np.int64)
        self._rows: dict[str, int] = {}
        self._free_rows = list(range(max_num_seqs))

    @property
    def request_ids(self) -> frozenset[str]:
        """Requests that hold a row."""
        return frozenset(self._rows)

    def row_of(self, request_id: str) -> int:
        """Returns the row of a request.

        Raises:
            BatchError: it has none.
        """
        row = self._rows.get(request_id)
        if row is None:
            raise BatchError(request_id, "is scheduled but is not in the batch")
        return row

    def place(
        self,
        request_id: str,
        token_ids: Sequence[int],
        num_output_tokens: int,
        num_computed_tokens: int,
        block_ids: BlockIds,
    ) -> None:
        """Puts a request into a free row."""
        if not self._free_rows:
            raise BatchError(
                request_id, f"does not fit: all {len(self.num_tokens)} rows (max_num_seqs) are used"
            )
        if len(token_ids) >= self.token_ids.shape[1]:
            raise BatchError(
                request_id,
                f"has {len(token_ids)} tokens but max_model_len is {self.token_ids.shape[1] - 1}",
            )
        row = self._rows[request_id] = heapq.heappop(self._free_rows)
        self.token_ids[row, : len(token_ids)] = token_ids
        self.num_tokens[row] = len(token_ids)
        self.num_prompt_tokens[row] = len(token_ids) - num_output_tokens
        self.num_computed_tokens[row] = num_computed_tokens
        self.num_draft_computed_tokens[row] = num_computed_tokens
        self.append_blocks(row, request_id, block_ids)

    def release(self, request_id: str) -> bool:
        """Frees the row of a request; returns whether it had one."""
        row = self._rows.pop(request_id, None)
        if row is None:
            return False
        self.block_tables[:, row, : self.num_blocks[:, row].max()] = 0
        self.num_blocks[:, row] = self.num_tokens[row] = self.num_computed_tokens[row] = 0
        heapq.heappush(self._free_rows, row)
        return True

    def append_tokens(self, request_id: str, token_ids: Sequence[int]) -> None:
        """Adds outputs that became known without being sampled."""
        row = self.row_of(request_id)
        start = int(self.num_tokens[row])
        end = start + len(token_ids)
        if end > self.token_ids.shape[1]:
            raise BatchError(
                request_id,
                f"has {end} tokens but max_model_len is {self.token_ids.shape[1] - 1}",
            )
        self.token_ids[row, start:end] = token_ids
        self.num_tokens[row] = end

    def append_blocks(self, row: int, request_id: str, block_ids: BlockIds) -> None:
        """Adds blocks to a row's tables.

        Raises:
            BatchError: they are of another number of groups, or too many.
        """
        if len(block_ids) != self.num_groups:
            raise BatchError(
                request_id,
                f"has {len(block_ids)} KV groups but the runner has {self.num_groups}",
            )
        for group, blocks in enumerate(block_ids):
            start = int(self.num_blocks[group, row])
            end = start + len(blocks)
            if end > self.block_tables.shape[2]:
                raise BatchError(
                    request_id,
                    f"has {end} blocks but max_model_len allows {self.block_tables.shape[2]}",
                )
            self.block_tables[group, row, start:end] = blocks
            self.num_blocks[group, row] = end

    def write_drafts(self, row: int, token_ids: Sequence[int]) -> None:
        """Puts drafts behind a row's known tokens; a placeholder runs as token 0."""
        start = self.num_tokens[row]
        self.token_ids[row, start : start + len(token_ids)] = np.maximum(token_ids, 0)

    def check_covered(
        self,
        request_ids: tuple[str, ...],
        rows: IntArray,
        scheduled: IntArray,
        seq_lens: IntArray,
        num_drafts: IntArray,
    ) -> None:
        """Raises BatchError where a request has not the tokens or the blocks for its step."""
        num_blocks = self.num_blocks[:, rows].min(axis=0)
        num_short = self.num_tokens[rows] + num_drafts - seq_lens
        wrong = (
            (scheduled < 1)
            | (num_short < 0)
            | ((num_short > 0) & (num_drafts > 0))
            | (seq_lens > num_blocks * self.block_size)
            | (seq_lens >= self.token_ids.shape[1])
        )
        if wrong.any():
            i = int(np.argmax(wrong))
            behind = f" and {num_drafts[i]} drafts" if num_drafts[i] else ""
            raise BatchError(
                request_ids[i],
                f"was scheduled {scheduled[i]} tokens, up to token {seq_lens[i]}, but has "
                f"{self.num_tokens[rows[i]]} tokens{behind} and {num_blocks[i]} blocks "
                f"of {self.block_size}",
            )

    def flatten(
        self,
        request_ids: tuple[str, ...],
        rows: IntArray,
        query_lens: IntArray,
        seq_lens: IntArray,
        *,
        drafts: Mapping[str, Sequence[int]] | None = None,
    ) -> BatchInputs:
        """Returns the inputs of rows that run their tokens up to `seq_lens`, in `batch_order`."""
        query_start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(query_lens, out=query_start[1:])
        token_rows = np.repeat(rows, query_lens)
        # A sequence's positions count up from its computed tokens, so flat index minus start.
        positions = np.arange(query_start[-1]) + np.repeat(
            seq_lens - query_lens - query_start[:-1], query_lens
        )
        blocks, offsets = np.divmod(positions, self.block_size)
        max_blocks = -(-int(seq_lens.max()) // self.block_size)
        by_place = {}
        if drafts:
            by_place = {i: drafts[name] for i, name in enumerate(request_ids) if name in drafts}
        num_drafts = np.zeros(len(rows), np.int64)
        num_drafts[list(by_place)] = [len(token_ids) for token_ids in by_place.values()]
        sampling_seqs = np.flatnonzero(seq_lens - num_drafts == self.num_tokens[rows])
        return BatchInputs(
            request_ids=request_ids,
            rows=rows,
            token_ids=self.token_ids[token_rows, positions].astype(np.int64),
            positions=positions,
            slot_mapping=self.block_tables[:, token_rows, blocks] * np.int64(self.block_size)
            + offsets,
            query_start=query_start,
            seq_lens=seq_lens,
            block_tables=self.block_tables[:, rows, :max_blocks],
            sampling_seqs=sampling_seqs,
            num_drafts=num_drafts[sampling_seqs],
            draft_token_ids=by_place,
        )
