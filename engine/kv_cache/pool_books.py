"""What must be true of a block pool's books, whoever looks at them.

Every disagreement is told, not only the first: a broken pool is read by a person who has one chance
to look. Nothing here relies on `assert`, which `python -O` strips.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBooks:
    """A pool at one moment. The lists are its own, not copies; block 0 is the null block.

    `free_list` is the list as it is linked, followed no further than a whole list could be long.
    """

    num_usable: int
    num_free: int
    num_free_cached: int
    free_list: Sequence[int]
    references: Sequence[int]
    keys: Sequence[bytes | None]
    index: Mapping[bytes, Collection[int]]

    @property
    def num_cached(self) -> int:
        """Blocks with a key, held or free."""
        return len(self.keys) - self.keys.count(None)

    @property
    def num_references(self) -> int:
        """References to all blocks."""
        return sum(self.references)

    def problems(self, entries: Mapping[int, int]) -> Iterator[str]:
        """Yields what does not agree.

        Args:
            entries: how often each block stands in block tables; the null block left out.
        """
        yield from self._about_the_free_list(entries)
        yield from self._about_references(entries)
        yield from self._about_the_cache()

    def _about_the_free_list(self, entries: Mapping[int, int]) -> Iterator[str]:
        num_linked, free = len(self.free_list), set(self.free_list)
        if not num_linked == len(free) == self.num_free:
            yield (
                f"free list and counter differ: {num_linked:,} blocks are linked, {len(free):,} "
                f"different ones, {self.num_free:,} are counted"
            )
        if len(free) + len(entries) != self.num_usable:
            yield (
                f"free + used is not the pool: {len(free):,} free + {len(entries):,} in block "
                f"tables, {self.num_usable:,} usable"
            )
        both = sorted(free & entries.keys())
        if both:
            yield f"a block is held and free: {_first(both)}"

    def _about_references(self, entries: Mapping[int, int]) -> Iterator[str]:
        expected = [0] * len(self.references)
        for block, count in entries.items():
            if block < len(expected):
                expected[block] = count
            else:
                yield f"a block table names block {block}, which the pool does not have"
        if list(self.references) != expected:
            wrong = [b for b, count in enumerate(self.references) if count != expected[b]]
            yield (
                f"block {wrong[0]}: wrong reference count: {self.references[wrong[0]]} references, "
                f"{expected[wrong[0]]} entries of block tables{more_like(wrong)}"
            )

    def _about_the_cache(self) -> Iterator[str]:
        keyed = [(block, key) for block, key in enumerate(self.keys) if key is not None]
        lost = [block for block, key in keyed if block not in self.index.get(key, ())]
        if lost:
            yield f"block {lost[0]}: lost from the index{more_like(lost)}"
        num_indexed = sum(map(len, self.index.values()))
        if num_indexed != len(keyed):
            yield (
                "the index holds a block without a key: "
                f"{num_indexed:,} blocks in the index, {len(keyed):,} with a key"
            )
        cached = sum(self.keys[block] is not None for block in self.free_list)
        if cached != self.num_free_cached:
            yield (
                f"cached free blocks and counter differ: {cached:,} in the free list, "
                f"{self.num_free_cached:,} counted"
            )


def _first(blocks: Sequence[int]) -> str:
    return f"block {blocks[0]}{more_like(blocks)}"


def more_like(wrong: Sequence[object]) -> str:
    """Returns how many others there are beside the first, as a note behind it."""
    return f" (and {len(wrong) - 1:,} more like it)" if len(wrong) > 1 else ""
