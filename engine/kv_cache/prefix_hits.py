"""How long a cached prefix is, where several groups must agree on it.

Groups of one kind (full attention, or the same window, with the same block size) are looked up
together: a block counts where all of them have it. A full group takes the longest prefix, a window
the right-most run that is long enough to go on from. Each kind shrinks the candidate to what it
has, until all agree on a multiple of the scheduler's block size.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.kv_cache.block_index import BlockKey
from engine.kv_cache.group import NULL_BLOCK, KVGroup


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """A cached prefix: its length, and the blocks of each group (0: left of the window).

    `num_tokens_full_group` is what the full-attention group has alone; None with one kind of group.
    """

    num_tokens: int
    blocks: tuple[list[int], ...]
    num_tokens_full_group: int | None = None


@dataclass(frozen=True, slots=True)
class _Kind:
    """Groups that are alike."""

    members: tuple[int, ...]
    groups: tuple[KVGroup, ...]

    @property
    def block_size(self) -> int:
        return self.groups[0].block_size

    def has(self, chain: list[BlockKey], index: int) -> bool:
        return all(group.find(chain, index) is not None for group in self.groups)


class PrefixLookup:
    """Finds cached prefixes over a fixed list of groups.

    Args:
        alignment: hits of several groups are multiples of it.
        drops_last_hit: the last block of each kind is computed again.
    """

    def __init__(self, groups: list[KVGroup], *, alignment: int, drops_last_hit: bool) -> None:
        self._groups = groups
        self._drop = drops_last_hit
        self._alignment = alignment if len(groups) > 1 else 1
        specs = list(dict.fromkeys(group.spec for group in groups))
        specs.sort(key=lambda spec: spec.kind != "full")
        self._kinds = [self._kind(spec) for spec in specs]

    def _kind(self, spec: object) -> _Kind:
        members = tuple(i for i, group in enumerate(self._groups) if group.spec == spec)
        return _Kind(members, tuple(self._groups[i] for i in members))

    def find(self, chain: list[BlockKey], most_tokens: int) -> PrefixHits:
        """Returns the longest prefix of at most `most_tokens` that all groups have."""
        if len(self._groups) == 1:
            length = self._alone(self._kinds[0], chain, most_tokens)
        else:
            length = self._agreed(chain, most_tokens)
        return PrefixHits(length, self._blocks(chain, length), self._of_full(chain, most_tokens))

    def _of_full(self, chain: list[BlockKey], most_tokens: int) -> int | None:
        """Returns what the full-attention groups have, were the others asked or not."""
        full = self._kinds[0]
        if len(self._kinds) < 2 or not full.groups[0].is_full:
            return None
        return self._run(full, chain, most_tokens // full.block_size, drop=False) * full.block_size

    # ---------------------------------------------------------------------------- one or several

    def _alone(self, kind: _Kind, chain: list[BlockKey], most_tokens: int) -> int:
        num_blocks = self._run(kind, chain, most_tokens // kind.block_size, drop=self._drop)
        return max(0, num_blocks - self._drop) * kind.block_size

    def _agreed(self, chain: list[BlockKey], candidate: int) -> int:
        is_first = True
        while True:
            before = candidate
            for kind in self._kinds:
                if not is_first and kind.groups[0].is_full:
                    continue
                candidate = self._shrunk(kind, chain, candidate, is_first=is_first)
            simple = len(self._kinds) == 2 and self._kinds[0].groups[0].is_full
            if candidate == before or simple:
                return candidate
            is_first = False

    def _shrunk(self, kind: _Kind, chain: list[BlockKey], candidate: int, *, is_first: bool) -> int:
        """Returns the candidate, cut to what a kind has.

        The last block is dropped once a kind, and again only where the candidate has shrunk since.
        """
        if is_first:
            reach = candidate + kind.block_size * self._drop
            return min(candidate, self._length(kind, chain, reach, drop=self._drop))
        if self._length(kind, chain, candidate, drop=False) == candidate:
            return candidate
        return self._length(kind, chain, candidate, drop=self._drop)

    def _length(self, kind: _Kind, chain: list[BlockKey], most_tokens: int, *, drop: bool) -> int:
        num_blocks = self._run(kind, chain, most_tokens // kind.block_size, drop=drop)
        length = max(0, num_blocks - drop) * kind.block_size
        return length // self._alignment * self._alignment

    # ------------------------------------------------------------------------------------ one kind

    def _run(self, kind: _Kind, chain: list[BlockKey], limit: int, *, drop: bool) -> int:
        """Returns where the usable run of cached blocks ends, in blocks."""
        limit = min(limit, kind.groups[0].num_keys(chain))
        if kind.groups[0].is_full:
            return min(group.num_cached(chain, limit) for group in kind.groups)
        return self._window_run(kind, chain, limit, drop=drop)

    def _window_run(self, kind: _Kind, chain: list[BlockKey], limit: int, *, drop: bool) -> int:
        need = kind.groups[0].run_length + drop
        end = length = 0
        for index in range(limit - 1, -1, -1):
            if not kind.has(chain, index):
                length = 0
                continue
            if length == 0:
                if (index + 1 - drop) * kind.block_size % self._alignment:
                    continue
                end = index + 1
            length += 1
            if length >= need:
                return end
        cycle = max(1, self._alignment // kind.block_size)
        return end // cycle * cycle if length else 0

    def _blocks(self, chain: list[BlockKey], length: int) -> tuple[list[int], ...]:
        return tuple(_table(group, chain, length) for group in self._groups)


def _table(group: KVGroup, chain: list[BlockKey], length: int) -> list[int]:
    """Returns a group's blocks of a hit; those that its window has passed are null."""
    num_blocks = length // group.block_size
    first = 0 if group.is_full else group.num_expired(length)
    return [NULL_BLOCK] * min(first, num_blocks) + [
        group.find(chain, index) or NULL_BLOCK for index in range(first, num_blocks)
    ]
