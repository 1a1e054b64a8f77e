"""Builders for tests of the scheduler comparison: small workloads, our scheduler on them."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.scheduling.ours import OurSide
from benchmarks.scheduling.peer import LocalPeer
from benchmarks.scheduling.workloads import Workload
from telemetry.recorder import NullRecorder


def our_side(workload: Workload) -> OurSide:
    return OurSide(workload, NullRecorder(), lambda: 0)


def our_peer(name: str = "ours", **changed: object) -> LocalPeer:
    """Returns our scheduler; `changed` are settings that it gets instead of the workload's."""
    return LocalPeer(name, lambda load: our_side(replace(load, **changed)))


def small(workload: Workload) -> Workload:
    return replace(workload, num_blocks=2, steps_a_block=8)
