"""Where a device's memory goes before there is a KV cache, and what that leaves for one.

A step as large as any is run on a cache of two blocks: its peak is what activations and logits
need. Graphs are recorded for the largest shapes, and what all of them will hold is estimated. What
the device has handed out to others than torch (its context, kernels, other processes) is not ours
to give away. The rest of the utilised share is the KV cache's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


class MemoryMeter(Protocol):
    """Reads a device's memory, in bytes."""

    def total(self) -> int:
        """Returns what the device has."""
        ...

    def free(self) -> int:
        """Returns what nobody holds."""
        ...

    def reserved(self) -> int:
        """Returns what torch has taken from the device, in use or not."""
        ...

    def allocated(self) -> int:
        """Returns what torch's tensors hold."""
        ...

    def begin_peak(self) -> None:
        """Forgets earlier peaks."""
        ...

    def peak(self) -> int:
        """Returns the most that tensors have held since."""
        ...

    def give_back(self) -> None:
        """Has torch return to the device what no tensor holds."""
        ...


class CudaMeter:
    """A CUDA device's memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def total(self) -> int:
        """Returns what the device has."""
        return torch.cuda.mem_get_info(self._device)[1]

    def free(self) -> int:
        """Returns what nobody holds."""
        return torch.cuda.mem_get_info(self._device)[0]

    def reserved(self) -> int:
        """Returns what torch has taken from the device."""
        return torch.cuda.memory_reserved(self._device)

    def allocated(self) -> int:
        """Returns what torch's tensors hold."""
        return torch.cuda.memory_allocated(self._device)

    def begin_peak(self) -> None:
        """Forgets earlier peaks."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        """Returns the most that tensors have held since."""
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device)

    def give_back(self) -> None:
        """Has torch return what no tensor holds."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfile:
    """A device's memory, in bytes.

    Attributes:
        total_bytes: all there is.
        weights_bytes: held once the model was loaded: weights, a draft model's, adapters' slots.
        activation_bytes: the most that a step has held beyond them.
        non_torch_bytes: held by others than torch.
        graph_bytes: what CUDA graphs will hold, estimated; 0 without.
    """

    total_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int = 0

    def kv_budget(self, gpu_memory_utilization: float) -> int:
        """Returns what is left for the KV cache; below 0 where nothing is."""
        taken = self.weights_bytes + self.activation_bytes + self.non_torch_bytes + self.graph_bytes
        return int(self.total_bytes * gpu_memory_utilization) - taken

    def describe(self) -> str:
        """Returns the parts in a sentence, for people."""
        parts = {
            "weights": self.weights_bytes,
            "activations": self.activation_bytes,
            "CUDA graphs": self.graph_bytes,
            "outside torch": self.non_torch_bytes,
        }
        told = ", ".join(f"{name} {count / 2**30:.2f} GiB" for name, count in parts.items())
        return f"{told}, of {self.total_bytes / 2**30:.2f} GiB"


def profile_memory(
    meter: MemoryMeter,
    run_largest_step: Callable[[], None],
    record_graphs: Callable[[], int] | None = None,
) -> MemoryProfile:
    """Returns the parts, measured.

    Args:
        meter: the device's.
        run_largest_step: runs a step as large as any, and keeps nothing.
        record_graphs: records graphs, forgets them, and returns what all will hold; None is none.
    """
    meter.give_back()
    weights = meter.allocated()
    meter.begin_peak()
    run_largest_step()
    peak = meter.peak()
    meter.give_back()
    non_torch = meter.total() - meter.free() - meter.reserved()
    graphs = 0 if record_graphs is None else record_graphs()
    meter.give_back()
    return MemoryProfile(
        total_bytes=meter.total(),
        weights_bytes=weights,
        activation_bytes=peak - weights,
        non_torch_bytes=non_torch,
        graph_bytes=graphs,
    )


def estimated_graph_bytes(measured: Sequence[int], num_graphs: int) -> int:
    """Returns what all graphs will hold, going by the first ones.

    The largest comes first and brings the memory that all share; each further one adds its own
    launches.

    Args:
        measured: bytes that each of the first graphs added.
        num_graphs: how many there will be.
    """
    if not measured:
        return 0
    further = max(measured[1:], default=0)
    return measured[0] + further * (num_graphs - 1)
