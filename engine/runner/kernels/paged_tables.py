"""A step's block tables in the form that kernels take them in. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PagedRows:
    """The blocks of all sequences in one row, as compressed sparse rows have it.

    Attributes:
        starts: `[num_seqs + 1]`, where in `blocks` each sequence's begin, and the end.
        blocks: all sequences' blocks, from the first one that is seen.
        last_block_lens: `[num_seqs]`, tokens in each one's last block, 1 to block_size.
    """

    starts: Int32Array
    blocks: Int32Array
    last_block_lens: Int32Array


def first_seen_blocks(
    query_lens: IntArray, seq_lens: IntArray, *, block_size: int, sliding_window: int | None
) -> IntArray:
    """Returns `[num_seqs]`, the place of the first block that a sequence's first query sees.

    What lies before may be another request's by now.
    """
    if sliding_window is None:
        return np.zeros_like(seq_lens)
    oldest: IntArray = np.maximum(seq_lens - query_lens - sliding_window + 1, 0)
    return oldest // block_size


def paged_rows(
    query_lens: IntArray,
    seq_lens: IntArray,
    block_tables: Int32Array,
    *,
    block_size: int,
    sliding_window: int | None,
) -> PagedRows:
    """Returns the blocks that a step sees.

    Whole blocks in front of a window are left out. That changes no distance between a query and a
    key, counted from a sequence's end, and a mask needs nothing else.

    Args:
        query_lens: `[num_seqs]`.
        seq_lens: `[num_seqs]`, keys up to each one's last query.
        block_tables: `[num_seqs, most blocks]`.
        block_size: tokens of a block.
        sliding_window: keys that a query sees, its own among them; None is all.
    """
    first = first_seen_blocks(
        query_lens, seq_lens, block_size=block_size, sliding_window=sliding_window
    )
    end = -(-seq_lens // block_size)
    places = np.arange(block_tables.shape[1])
    seen = (places >= first[:, None]) & (places < end[:, None])
    return PagedRows(
        starts=np.concatenate(([0], np.cumsum(end - first))).astype(np.int32),
        blocks=block_tables[seen],
        last_block_lens=((seq_lens - 1) % block_size + 1).astype(np.int32),
    )
