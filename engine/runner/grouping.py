"""Which sequences of a step attend together, so that a group is one padded batch.

A group costs a fixed overhead a layer, and padding costs work: so sequences of about the same
length share a group. Decodes (one query) make few large groups. A prefill chunk is cut into tiles
of queries, each of which sees keys only up to its own end; short chunks of similar shape share a
group. Behind a sliding window nothing is gathered: its blocks may be another request's by now. Pure
numpy; the tensors are made in `engine.runner.attention`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

TILE_QUERIES = 256
"""Queries of one prefill tile: keys beyond a tile's end are neither gathered nor masked."""

MIN_PADDED_BLOCKS = 8
"""Sequences up to this many blocks share a group, however they differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sequences that attend in one batch.

    Attributes:
        sequences: `[size]`, their places in the step's batch.
        query_start: `[size]`, place of each one's first query among the step's flat tokens.
        query_lens: `[size]`, queries of each.
        seq_lens: `[size]`, keys up to each one's last query.
        first_blocks: `[size]`, place in its table of the first block that is gathered.
        num_blocks: blocks gathered for each, padding included.
    """

    sequences: IntArray
    query_start: IntArray
    query_lens: IntArray
    seq_lens: IntArray
    first_blocks: IntArray
    num_blocks: int

    @property
    def is_uniform(self) -> bool:
        """Whether the queries lie side by side, equally many a sequence: no padding of queries."""
        first = int(self.query_lens[0])
        step = np.diff(self.query_start)
        return bool((self.query_lens == first).all() and (step == first).all())


def batch_order(query_lens: IntArray, seq_lens: IntArray) -> IntArray:
    """Returns the order of a step's sequences: decodes first, long before short, then prefills."""
    is_prefill = query_lens > 1
    order: IntArray = np.lexsort((np.where(is_prefill, 0, -seq_lens), is_prefill))
    return order


def group_sequences(
    query_lens: IntArray,
    seq_lens: IntArray,
    *,
    block_size: int,
    max_group_tokens: int,
    sliding_window: int | None = None,
) -> list[Group]:
    """Returns the groups that cover every query of a step once.

    Args:
        query_lens: `[num_seqs]`, in the order of `batch_order`.
        seq_lens: `[num_seqs]`, keys after this step.
        block_size: tokens of a KV block.
        max_group_tokens: most keys that a group gathers, unless one sequence alone has more.
        sliding_window: keys that a query sees, its own among them; None is all.
    """
    max_blocks = max_group_tokens // block_size
    num_decodes = int(np.count_nonzero(query_lens == 1))
    if num_decodes == len(seq_lens) and sliding_window is None:
        alike = _all_decodes(query_lens, seq_lens, block_size, max_blocks)
        if alike is not None:
            return [alike]
    queries = _Queries(query_lens, seq_lens, block_size, sliding_window)
    # Within a window a shorter sequence may touch a block more; counted so that none seems longer.
    reach = np.maximum.accumulate(queries.num_blocks[:num_decodes][::-1])[::-1]
    groups: list[Group] = []
    first = 0
    while first < num_decodes:
        count = _decodes_alike(reach[first:], max_blocks)
        groups.append(queries.group(np.arange(first, first + count)))
        first += count
    for members in _prefills_alike(num_decodes, query_lens, queries.num_blocks, max_blocks):
        alone = len(members) == 1
        groups.extend(queries.tiles(int(members[0])) if alone else [queries.group(members)])
    return groups


def _all_decodes(
    query_lens: IntArray, seq_lens: IntArray, block_size: int, max_blocks: int
) -> Group | None:
    """Returns the one group of a step that only decodes, the commonest; None where it has more."""
    num_blocks = -(-seq_lens // block_size)
    longest = int(num_blocks.max())
    if num_blocks.min() < _shortest_alike(longest) or len(seq_lens) * longest > max_blocks:
        return None
    places = np.arange(len(seq_lens))
    return Group(
        sequences=places,
        query_start=places,
        query_lens=query_lens,
        seq_lens=seq_lens,
        first_blocks=np.zeros_like(seq_lens),
        num_blocks=longest,
    )


class _Queries:
    """A step's queries, and the blocks that they see.

    `num_blocks` and `first_blocks`, `[num_seqs]`, are of each sequence's whole chunk.
    """

    def __init__(
        self,
        query_lens: IntArray,
        seq_lens: IntArray,
        block_size: int,
        sliding_window: int | None,
    ) -> None:
        self._block_size = block_size
        self._window = sliding_window
        self._query_lens = query_lens
        self._seq_lens = seq_lens
        self._query_start = np.cumsum(query_lens) - query_lens
        self.first_blocks, self.num_blocks = self._seen(query_lens, seq_lens)

    def group(self, members: IntArray) -> Group:
        """Returns the group of some sequences with all their queries."""
        return Group(
            sequences=members,
            query_start=self._query_start[members],
            query_lens=self._query_lens[members],
            seq_lens=self._seq_lens[members],
            first_blocks=self.first_blocks[members],
            num_blocks=int(self.num_blocks[members].max()),
        )

    def tiles(self, member: int) -> list[Group]:
        """Returns a group for each tile of one sequence's queries."""
        num_queries = int(self._query_lens[member])
        num_before = int(self._seq_lens[member]) - num_queries
        tiles = []
        for start in range(0, num_queries, TILE_QUERIES):
            end = min(start + TILE_QUERIES, num_queries)
            query_lens, seq_lens = np.array([end - start]), np.array([num_before + end])
            first_blocks, num_blocks = self._seen(query_lens, seq_lens)
            tiles.append(
                Group(
                    sequences=np.array([member]),
                    query_start=self._query_start[[member]] + start,
                    query_lens=query_lens,
                    seq_lens=seq_lens,
                    first_blocks=first_blocks,
                    num_blocks=int(num_blocks[0]),
                )
            )
        return tiles

    def _seen(self, query_lens: IntArray, seq_lens: IntArray) -> tuple[IntArray, IntArray]:
        """Returns the first block that the first query sees, and the blocks from there on."""
        first = np.zeros_like(seq_lens)
        if self._window is not None:
            oldest = seq_lens - query_lens - self._window + 1
            first = np.maximum(oldest, 0) // self._block_size
        return first, -(-seq_lens // self._block_size) - first


def _decodes_alike(num_blocks: IntArray, max_blocks: int) -> int:
    """Returns how many of the sequences (most blocks first) share the first one's group."""
    longest = int(num_blocks[0])
    alike = int(np.searchsorted(-num_blocks, -_shortest_alike(longest), side="right"))
    return max(1, min(alike, max_blocks // longest))


def _shortest_alike(longest: int) -> int:
    """Returns the fewest blocks of a sequence that shares a group with one of so many."""
    return longest // 2 + 1 if longest > MIN_PADDED_BLOCKS else 1


def _prefills_alike(
    first: int, query_lens: IntArray, num_blocks: IntArray, max_blocks: int
) -> list[IntArray]:
    """Returns the prefills from `first` on, those of similar shape together."""
    members = np.arange(first, len(query_lens))
    members = members[np.lexsort((-num_blocks[members], -query_lens[members]))]
    alike: list[list[int]] = []
    for member in members.tolist():
        queries, blocks = int(query_lens[member]), int(num_blocks[member])
        if alike:
            head = alike[-1][0]
            fits = (
                query_lens[head] <= min(TILE_QUERIES, 2 * queries)
                and blocks <= num_blocks[head]
                and num_blocks[head] <= max(2 * blocks, MIN_PADDED_BLOCKS)
                and (len(alike[-1]) + 1) * num_blocks[head] <= max_blocks
            )
            if fits:
                alike[-1].append(member)
                continue
        alike.append([member])
    return [np.array(group) for group in alike]
