"""The cache of encoder outputs (images, audio): which are kept, for whom, and which may go.

    size 100   [ i1 36 : held by a ][ i2 30 : nobody ][ free 34 ]
                                     reclaimable = 30 + 34

Space is counted in embeddings. An entry that nobody refers to stays until its space is needed; the
one that was released first goes first.

Source: `vllm/v1/core/encoder_cache_manager.py` is the reference for the order of eviction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Holder = tuple[int, int]
"""A request's number, and the index of its item: one request may hold a key twice."""


@dataclass(frozen=True, slots=True)
class EncoderItem:
    """An encoder input of a prompt: `num_embeds` embeddings at `position`, equal if keys are."""

    key: str
    position: int
    num_embeds: int

    @property
    def end(self) -> int:
        """The first prompt position behind it."""
        return self.position + self.num_embeds


@dataclass(slots=True)
class _Entry:
    num_embeds: int
    holders: set[Holder] = field(default_factory=set)
    is_encoded: bool = True


class EncoderCache:
    """Entries by key, and who holds them.

    Invariants:
        `num_free` is the size less all entries; `num_reclaimable` adds those that nobody holds.
    """

    def __init__(self, size: int) -> None:
        self.num_free = size
        self.num_reclaimable = size
        self._entries: dict[str, _Entry] = {}
        self._released: dict[str, None] = {}
        self._evicted: list[str] = []

    def length_of(self, key: str) -> int | None:
        """Returns how many embeddings are cached under a key; None if it is not there."""
        entry = self._entries.get(key)
        return entry.num_embeds if entry is not None and entry.is_encoded else None

    def hold(self, key: str, holder: Holder) -> None:
        """Adds a reference to an entry that is there."""
        entry = self._entries[key]
        if not entry.holders:
            del self._released[key]
            self.num_reclaimable -= entry.num_embeds
        entry.holders.add(holder)

    def make_room(self, num_embeds: int) -> bool:
        """Evicts until so many embeddings are free; False, and nothing done, if they cannot be."""
        if num_embeds > self.num_reclaimable:
            return False
        while num_embeds > self.num_free:
            key = next(iter(self._released))
            self._drop(key)
            self._evicted.append(key)
        return True

    def _drop(self, key: str) -> None:
        del self._released[key]
        self.num_free += self._entries.pop(key).num_embeds

    def enter(self, item: EncoderItem, holder: Holder) -> None:
        """Enters an item that is encoded in this step; room has been made for it."""
        if item.key in self._entries:  # withdrawn before it was encoded
            self._drop(item.key)
        self._entries[item.key] = _Entry(item.num_embeds, {holder})
        self.num_free -= item.num_embeds
        self.num_reclaimable -= item.num_embeds

    def let_go(self, key: str, holder: Holder) -> None:
        """Drops a reference, if it is there; an entry without any can be evicted from now on."""
        entry = self._entries.get(key)
        if entry is None or holder not in entry.holders:
            return
        entry.holders.discard(holder)
        if not entry.holders:
            self._released[key] = None
            self.num_reclaimable += entry.num_embeds

    def withdraw(self, key: str) -> None:
        """Notes that an entry nobody holds was not encoded after all; its space can be evicted."""
        entry = self._entries.get(key)
        if entry is not None and not entry.holders:
            entry.is_encoded = False

    def reset(self) -> None:
        """Forgets all entries."""
        self.num_free = self.num_reclaimable = self.num_free + sum(
            entry.num_embeds for entry in self._entries.values()
        )
        self._entries.clear()
        self._released.clear()

    def check_integrity(self) -> None:
        """Raises AssertionError unless sizes, holders and the order of eviction agree."""
        unheld = {key for key, entry in self._entries.items() if not entry.holders}
        assert unheld == self._released.keys(), "who can be evicted and who is held differ"
        held_back = sum(self._entries[key].num_embeds for key in unheld)
        assert self.num_reclaimable == self.num_free + held_back, "reclaimable space is wrong"

    def take_evicted(self) -> list[str]:
        """Returns the keys evicted since the last call, for the runner to drop."""
        evicted, self._evicted = self._evicted, []
        return evicted
