"""What the start banner says about a device: kernel, graphs, memory."""

from __future__ import annotations

from engine.runner.device_profile import DeviceProfile
from engine.runner.graphs import DecodeGraphs
from engine.runner.kernels.choice import ChosenBackend


def device_notes(
    attention: ChosenBackend,
    profile: DeviceProfile,
    graphs: DecodeGraphs | None,
    *,
    gpu_memory_utilization: float,
) -> dict[str, str]:
    """Returns the lines, by what they are about."""
    passed_over = "".join(f"; not {name}: {why}" for name, why in attention.passed_over.items())
    return {
        "attention": attention.name + passed_over,
        "graphs": _graphs(graphs, profile),
        "memory": f"{profile.memory.describe()}, of which {gpu_memory_utilization:.0%} are used",
    }


def _graphs(graphs: DecodeGraphs | None, profile: DeviceProfile) -> str:
    if profile.no_graphs_because is not None:
        return f"none: {profile.no_graphs_because}"
    if graphs is None or not graphs.shapes:
        return "none: each kernel is launched alone"
    largest = max(shape.num_seqs for shape in graphs.shapes)
    return f"{len(graphs.shapes)}, of decode batches up to {largest} requests"
