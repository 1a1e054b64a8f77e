"""The measurements as a section for RESULTS.md."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import torch

from benchmarks.device.limits import DeviceLimits
from benchmarks.device.serving import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: what was run, and what came of it; a reason where it could not be run."""

    model: str
    kernel: str
    graphs: bool
    work: str
    measured: Measured | None
    reason: str = ""


def header(device: torch.device, command: str) -> list[str]:
    """Returns the heading, with command, machine and date."""
    name = platform.processor() or platform.machine()
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    machine = f"{name}, torch {torch.__version__}, Python {platform.python_version()}"
    return ["## The engine on a CUDA device", "", f"`{command}`, {date}, {machine}.", ""]


def limits_lines(limits: DeviceLimits) -> list[str]:
    """Returns what the device can do."""
    return [
        f"Measured limits: memory {limits.bytes_per_second / 1e9:,.0f} GB/s (a copy, read and "
        f"written), {limits.flops_per_second / 1e12:,.1f} TFLOP/s (a matrix product). A step's "
        "share is the time that these allow for it over the time that it took.",
        "",
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """Returns the measurements, a line each."""
    lines = [
        "| model | kernel | graphs | work | tokens/s | ms a step | share |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        start = f"| {row.model} | {row.kernel} | {'yes' if row.graphs else 'no'} | {row.work} |"
        if row.measured is None:
            lines.append(f"{start} {row.reason} | – | – |")
            continue
        m = row.measured
        lines.append(
            f"{start} {m.tokens_per_second:,.0f} | {m.step_seconds * 1e3:.2f} | {m.share:.1%} |"
        )
    return [*lines, ""]


def recording_lines(num_requests: int, ratios: Sequence[float]) -> list[str]:
    """Returns what recording costs."""
    middle = sorted(ratios)[len(ratios) // 2]
    return [
        f"Recording, {num_requests} decoding requests, {len(ratios)} pairs of blocks: a step takes "
        f"{middle:.3f} times as long (median; {min(ratios):.3f} to {max(ratios):.3f}).",
        "",
    ]


def passed_over_lines(reasons: dict[str, str]) -> list[str]:
    """Returns which kernels were not measured, and why."""
    if not reasons:
        return []
    return [*(f"Not measured: {name}: {why}." for name, why in reasons.items()), ""]
