"""Which batches a CUDA graph is captured for, and how a step's decodes are padded to one.

A graph launches the same kernels with the same sizes each time. So decode batches come in a few
sizes, and a smaller one is filled up with sequences that stand for nobody: their tokens lie in the
null block, which nobody reads, and they see themselves alone. Pure numpy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.runner.batch_inputs import BatchInputs

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class DecodeShape:
    """A batch of `num_seqs` sequences with `query_len` tokens each."""

    num_seqs: int
    query_len: int = 1

    @property
    def num_tokens(self) -> int:
        """Tokens of the batch."""
        return self.num_seqs * self.query_len


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedDecodes:
    """A step's decodes, filled up to a shape.

    Attributes:
        shape: what they were filled up to.
        token_ids: `[num_tokens]`.
        positions: `[num_tokens]`.
        slot_mapping: `[num_groups, num_tokens]`.
        seq_lens: `[num_seqs]`.
        block_tables: `[num_groups, num_seqs, most blocks]` int32.
    """

    shape: DecodeShape
    token_ids: IntArray
    positions: IntArray
    slot_mapping: IntArray
    seq_lens: IntArray
    block_tables: npt.NDArray[np.int32]

    @property
    def query_lens(self) -> IntArray:
        """`[num_seqs]`, tokens of each."""
        return np.full(self.shape.num_seqs, self.shape.query_len, np.int64)


def uniform_query_len(inputs: BatchInputs) -> int | None:
    """Returns how many tokens each sequence of a step has; None where they differ."""
    query_lens = inputs.query_lens
    first = int(query_lens[0])
    return first if bool((query_lens == first).all()) else None


class DecodeShapes:
    """The shapes that there are graphs of.

    Args:
        shapes: in any order.
    """

    def __init__(self, shapes: Sequence[DecodeShape]) -> None:
        self._sizes: dict[int, list[int]] = {}
        for shape in sorted(shapes):
            self._sizes.setdefault(shape.query_len, []).append(shape.num_seqs)

    def fitting(self, inputs: BatchInputs) -> DecodeShape | None:
        """Returns the smallest shape that holds a step; None where it has to run without."""
        query_len = uniform_query_len(inputs)
        sizes = self._sizes.get(query_len or 0, [])
        place = bisect_left(sizes, len(inputs.seq_lens))
        if query_len is None or place == len(sizes):
            return None
        return DecodeShape(sizes[place], query_len)


def shapes_of(
    capture_sizes: Sequence[int], *, max_num_seqs: int, query_lens: Sequence[int]
) -> tuple[DecodeShape, ...]:
    """Returns the shapes to capture, largest first: small graphs fit into the memory of large ones.

    Args:
        capture_sizes: tokens of a graph, as vLLM counts them.
        max_num_seqs: no step has more sequences.
        query_lens: tokens of a sequence in a step of decodes: 1, and with k drafts k + 1.
    """
    shapes = set()
    for query_len in query_lens:
        sizes = [size // query_len for size in capture_sizes if size >= query_len]
        shapes |= {DecodeShape(min(size, max_num_seqs), query_len) for size in sizes}
    return tuple(sorted(shapes, key=lambda shape: (-shape.num_tokens, shape)))


def pad_decodes(inputs: BatchInputs, shape: DecodeShape, block_size: int) -> PaddedDecodes:
    """Returns a uniform step filled up to a shape that holds it."""
    num_padding = shape.num_seqs - len(inputs.seq_lens)
    own_positions = np.tile(np.arange(shape.query_len), num_padding)
    own_slots = np.tile(own_positions % block_size, (len(inputs.slot_mapping), 1))
    return PaddedDecodes(
        shape=shape,
        token_ids=np.pad(inputs.token_ids, (0, len(own_positions))),
        positions=np.concatenate((inputs.positions, own_positions)),
        slot_mapping=np.concatenate((inputs.slot_mapping, own_slots), axis=1),
        seq_lens=np.pad(inputs.seq_lens, (0, num_padding), constant_values=shape.query_len),
        block_tables=np.pad(inputs.block_tables, ((0, 0), (0, num_padding), (0, 0))),
    )
