"""Which blocks are cached under a key: one as a rule, which then costs no container of its own."""

from __future__ import annotations

BlockKey = bytes
"""Chained hash of a full block and of all before it."""


class BlockIndex:
    """Blocks by key; equal blocks stay side by side, and the oldest is the one that is found."""

    def __init__(self) -> None:
        self._oldest: dict[BlockKey, int] = {}
        self._younger: dict[BlockKey, list[int]] = {}
        self.oldest = self._oldest.get
        """Returns the block that was entered first under a key; None where there is none."""

    def add(self, key: BlockKey, block: int) -> None:
        """Enters a block under a key."""
        if self._oldest.setdefault(key, block) != block:
            self._younger.setdefault(key, []).append(block)

    def drop(self, key: BlockKey, block: int) -> None:
        """Takes a block out from under a key."""
        younger = self._younger.get(key)
        if younger is None:
            del self._oldest[key]
            return
        if self._oldest[key] == block:
            self._oldest[key] = younger.pop(0)
        else:
            younger.remove(block)
        if not younger:
            del self._younger[key]

    def clear(self) -> None:
        """Forgets everything."""
        self._oldest.clear()
        self._younger.clear()

    def as_mapping(self) -> dict[BlockKey, list[int]]:
        """Returns all blocks by key, the oldest first."""
        return {key: [block, *self._younger.get(key, ())] for key, block in self._oldest.items()}
