"""The cache of encoder outputs (images, audio): which are kept, for whom, and which may go.

    size 100   [ i1 36 : held by a ][ i2 30 : nobody ][ free 34 ]
                                     reclaimable = 30 + 34

Space is counted in embeddings. An entry that nobody refers to stays until its space is needed; the
one that was released first goes first. The space of an output that is on its way from elsewhere is
taken and can be neither held nor evicted until it has arrived.

Source: `vllm/v1/core/encoder_cache_manager.py` is the reference for the order of eviction.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    is_arriving: bool = False


class EncoderCache:
    """Entries by key, and who holds them.

    Invariants:
        `num_free` is the size less all entries; `num_reclaimable` adds those that nobody holds and
        that are not on their way.
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

    def is_arriving(self, key: str) -> bool:
        """Whether the output of a key is on its way from elsewhere."""
        entry = self._entries.get(key)
        return entry is not None and entry.is_arriving

    def expect(self, item: EncoderItem, *, beside: int = 0) -> bool:
        """Takes the space of an output that is sent for; False, and nothing taken, without room.

        Args:
            beside: embeddings that are going to be entered in this step and have no space yet.
        """
        if not self.make_room(beside + item.num_embeds):
            return False
        if item.key in self._entries:  # withdrawn before it was encoded
            self._drop(item.key)
        self._entries[item.key] = _Entry(item.num_embeds, is_encoded=False, is_arriving=True)
        self.num_free -= item.num_embeds
        self.num_reclaimable -= item.num_embeds
        return True

    def arrived(self, key: str) -> None:
        """Makes an output that was on its way an ordinary entry, which nobody holds yet."""
        entry = self._entries[key]
        entry.is_encoded, entry.is_arriving = True, False
        self._released[key] = None
        self.num_reclaimable += entry.num_embeds

    def give_up(self, key: str) -> None:
        """Frees the space of an output that was on its way and is not going to come."""
        num_embeds = self._entries.pop(key).num_embeds
        self.num_free += num_embeds
        self.num_reclaimable += num_embeds

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
        """Forgets all entries but those on their way, whose space is being written."""
        arriving = {key: entry for key, entry in self._entries.items() if entry.is_arriving}
        freed = sum(e.num_embeds for key, e in self._entries.items() if key not in arriving)
        self.num_free = self.num_reclaimable = self.num_free + freed
        self._entries = arriving
        self._released.clear()

    def problems(self) -> Iterator[str]:
        """Yields where sizes, holders and the order of eviction disagree."""
        unheld = {k for k, e in self._entries.items() if not (e.holders or e.is_arriving)}
        if unheld != self._released.keys():
            yield (
                "who can be evicted and who is held differ: "
                f"{len(unheld):,} encoder entries that nobody holds, {len(self._released):,} listed"
            )
            return
        held_back = sum(self._entries[key].num_embeds for key in unheld)
        if self.num_reclaimable != self.num_free + held_back:
            yield (
                f"reclaimable space is wrong: {self.num_reclaimable:,} embeddings, with "
                f"{self.num_free:,} free and {held_back:,} that nobody holds"
            )

    def check_integrity(self) -> None:
        """Raises AssertionError unless sizes, holders and the order of eviction agree."""
        problems = list(self.problems())
        if problems:
            raise AssertionError("; ".join(problems))

    def take_evicted(self) -> list[str]:
        """Returns the keys evicted since the last call, for the runner to drop.

        One that has been entered anew since is not among them: the runner keeps what it writes.
        """
        evicted, self._evicted = self._evicted, []
        return [key for key in evicted if key not in self._entries]
