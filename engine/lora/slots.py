"""Which adapter lies in which slot of the device, and who makes room for whom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection


class AdapterSlots:
    """Slots 0 to `num_slots - 1`; the adapter that was used longest ago makes room."""

    def __init__(self, num_slots: int) -> None:
        self._free = list(reversed(range(num_slots)))
        self._slots: OrderedDict[str, int] = OrderedDict()

    def slot_of(self, adapter: str) -> int | None:
        """Returns where an adapter lies; None if it is not on the device."""
        return self._slots.get(adapter)

    def take(self, adapter: str, needed: Collection[str]) -> tuple[int, bool]:
        """Returns an adapter's slot, and whether it has just got it and has to be copied there.

        Args:
            needed: those of the running batch, which stay.

        Raises:
            RuntimeError: they fill all slots: the scheduler let in more than `max_loras`.
        """
        slot = self._slots.get(adapter)
        is_new = slot is None
        if slot is None:
            slot = self._free.pop() if self._free else self._evict(needed)
        self._slots[adapter] = slot
        self._slots.move_to_end(adapter)
        return slot, is_new

    def _evict(self, needed: Collection[str]) -> int:
        victim = next((name for name in self._slots if name not in needed), None)
        if victim is None:
            raise RuntimeError(
                f"a batch needs {len(set(needed))} adapters but there are {len(self._slots)} slots"
            )
        return self._slots.pop(victim)
