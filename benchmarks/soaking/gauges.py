"""What may only grow so far: memory, handles and threads of each process, and blocks in use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An idle moment. Values are by name: `<process> MiB|handles|threads`, or `blocks in use`."""

    seconds: float
    num_requests: int
    values: Mapping[str, float]


def measure(
    processes: Mapping[str, int], books: Mapping[str, Any], *, seconds: float, num_requests: int
) -> Sample:
    """Returns what processes, by name, and the engine's books have in use now."""
    values: dict[str, float] = {}
    for name, pid in processes.items():
        values[f"{name} MiB"] = resident_bytes(pid) / MIB
        values[f"{name} handles"] = len(os.listdir(f"/proc/{pid}/fd"))
        values[f"{name} threads"] = len(os.listdir(f"/proc/{pid}/task"))
    values["blocks in use"] = blocks_in_use(books)
    return Sample(seconds=seconds, num_requests=num_requests, values=values)


def blocks_in_use(books: Mapping[str, Any]) -> int:
    """Returns the KV blocks that anybody holds."""
    names = ("num_running_blocks", "num_waiting_blocks", "num_kept_blocks")
    return sum(int(books[name]) for name in names)


def resident_bytes(pid: int) -> int:
    """Returns the memory of a process that is really there, shared pages among it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"process {pid} has no memory: it has ended")
