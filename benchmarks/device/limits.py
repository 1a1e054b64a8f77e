"""What a device can do at best: memory read and written a second, and multiplications."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """Measured, not from a data sheet."""

    bytes_per_second: float
    flops_per_second: float

    def seconds(self, *, num_bytes: float, num_flops: float) -> float:
        """Returns the least time in which the device moves and multiplies so much."""
        return max(num_bytes / self.bytes_per_second, num_flops / self.flops_per_second)


def measure_limits(device: torch.device, dtype: torch.dtype, *, is_tiny: bool) -> DeviceLimits:
    """Returns a device's limits.

    Args:
        is_tiny: with sizes that say nothing about the device, to try the code.
    """
    count, side = (1 << 20, 256) if is_tiny else (1 << 30, 8192)
    return DeviceLimits(
        bytes_per_second=_copied_bytes(count, device),
        flops_per_second=_multiplied(side, device, dtype),
    )


def _copied_bytes(count: int, device: torch.device) -> float:
    """Returns bytes read and written a second."""
    source = torch.ones(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * count / best_seconds(lambda: target.copy_(source), device)


def _multiplied(side: int, device: torch.device, dtype: torch.dtype) -> float:
    """Returns floating-point operations a second, of a product of square matrices."""
    left = torch.randn(side, side, device=device).to(dtype)
    right = torch.randn(side, side, device=device).to(dtype)
    return 2 * side**3 / best_seconds(lambda: left @ right, device)


def best_seconds(run: Callable[[], object], device: torch.device, *, inner: int = 10) -> float:
    """Returns the shortest of a few times, each the mean of `inner` runs in a row."""
    run()
    times = []
    for _ in range(REPEATS):
        wait_for(device)
        began = time.perf_counter()
        for _ in range(inner):
            run()
        wait_for(device)
        times.append((time.perf_counter() - began) / inner)
    return min(times)


def wait_for(device: torch.device) -> None:
    """Waits until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
