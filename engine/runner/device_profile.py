"""Measures, with a runner that is thrown away, what an engine will need beside its KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine.config import EngineConfig
from engine.runner.graphs import (
    Capturer,
    CudaCapturer,
    GraphCaptureError,
    Run,
    shapes_to_record,
)
from engine.runner.largest_step import run_largest_step, with_two_blocks
from engine.runner.memory_profile import (
    CudaMeter,
    MemoryMeter,
    MemoryProfile,
    estimated_graph_bytes,
    profile_memory,
)
from engine.runner.model_runner import ModelRunner

NUM_MEASURED_GRAPHS = 2
"""The largest brings the memory that all share, the next one tells what another adds."""


@dataclass(slots=True)
class MeteredCapturer:
    """Captures with another capturer, and notes how much memory each graph took from the device."""

    capturer: Capturer
    meter: MemoryMeter
    taken: list[int] = field(default_factory=list)

    def capture(self, run: Run) -> Run:
        """Returns what repeats `run` (see `Capturer`)."""
        before = self.meter.free()
        launch = self.capturer.capture(run)
        self.taken.append(max(0, before - self.meter.free()))
        return launch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """What was measured; `no_graphs_because` is None where graphs can be recorded."""

    memory: MemoryProfile
    no_graphs_because: str | None = None


def profile_device(
    config: EngineConfig,
    make_runner: Callable[[EngineConfig], ModelRunner],
    meter: MemoryMeter,
    make_capturer: Callable[[], Capturer] | None,
) -> DeviceProfile:
    """Returns the memory profile of an engine's model.

    Args:
        config: the engine's; its number of KV blocks does not matter.
        make_runner: makes the model's runner.
        meter: the device's memory.
        make_capturer: makes what records graphs; None where there are to be none.
    """
    small = with_two_blocks(config)
    obstacle: list[str] = []

    def run_step() -> None:
        run_largest_step(make_runner(small), small)

    def record() -> int:
        assert make_capturer is not None
        metered = MeteredCapturer(make_capturer(), meter)
        runner = make_runner(small)
        try:
            runner.capture_graphs(metered, at_most=NUM_MEASURED_GRAPHS)
        except GraphCaptureError as error:
            obstacle.append(str(error))
            return 0
        return estimated_graph_bytes(metered.taken, len(shapes_to_record(small)))

    memory = profile_memory(meter, run_step, None if make_capturer is None else record)
    return DeviceProfile(memory=memory, no_graphs_because=obstacle[0] if obstacle else None)


def profile_cuda(
    device: torch.device, config: EngineConfig, make_runner: Callable[[EngineConfig], ModelRunner]
) -> DeviceProfile:
    """Returns the memory profile of an engine's model on a CUDA device."""
    make_capturer = None if config.compilation.enforce_eager else lambda: CudaCapturer(device)
    return profile_device(config, make_runner, CudaMeter(device), make_capturer)


def record_cuda_graphs(runner: ModelRunner, config: EngineConfig, profile: DeviceProfile) -> int:
    """Records a runner's graphs, unless they are off or cannot be; returns what they hold."""
    if config.compilation.enforce_eager or profile.no_graphs_because is not None:
        return 0
    device = runner.model.device
    metered = MeteredCapturer(CudaCapturer(device), CudaMeter(device))
    runner.capture_graphs(metered)
    return sum(metered.taken)
