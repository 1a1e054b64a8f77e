"""The adapters of the requests in the runner's batch, brought to the device as steps need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.lora.layers import NO_ADAPTER, AdapterMapping, LoRALayers
from engine.lora.reading import LoadedAdapter
from engine.lora.slots import AdapterSlots
from engine.scheduler.output import SchedulerOutput

IntArray = npt.NDArray[np.int64]


class AdapterBatch:
    """Knows each request's adapter from its first step to its end, preemptions included.

    Args:
        layers: the model's, with the slots.
        weights_of: returns an adapter that is in host memory, else None.
    """

    def __init__(
        self, layers: LoRALayers, weights_of: Callable[[str], LoadedAdapter | None]
    ) -> None:
        self.num_placed = 0
        """Adapters copied to the device so far."""
        self._layers = layers
        self._weights_of = weights_of
        self._slots = AdapterSlots(layers.num_slots)
        self._adapters: dict[str, str] = {}

    def apply(self, output: SchedulerOutput) -> None:
        """Takes in who came and who ended."""
        for request_id in output.finished_req_ids:
            self._adapters.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            if new.adapter is not None:
                self._adapters[new.request_id] = new.adapter

    def mapping(self, request_ids: Sequence[str], query_lens: IntArray) -> AdapterMapping | None:
        """Returns the mapping of a step, its adapters on the device; None where it has none.

        Args:
            request_ids: the sequences, in batch order.
            query_lens: `[num_seqs]`, tokens of each.

        Raises:
            RuntimeError: an adapter is neither on the device nor in host memory.
        """
        if not self._adapters:
            return None
        adapters = [self._adapters.get(request_id) for request_id in request_ids]
        needed = {adapter for adapter in adapters if adapter is not None}
        if not needed:
            return None
        slots: dict[str | None, int] = {each: self._place(each, needed) for each in sorted(needed)}
        slots[None] = NO_ADAPTER
        by_seq = np.array([slots[adapter] for adapter in adapters], np.int64)
        return self._layers.mapping(np.repeat(by_seq, query_lens))

    def _place(self, adapter: str, needed: set[str]) -> int:
        slot, is_new = self._slots.take(adapter, needed)
        if is_new:
            weights = self._weights_of(adapter)
            if weights is None:
                raise RuntimeError(f"adapter {adapter!r} is not in host memory")
            self._layers.place(slot, weights)
            self.num_placed += 1
        return slot
