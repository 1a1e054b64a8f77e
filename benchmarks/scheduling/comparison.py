"""Alternates schedulers on one workload, block by block, and demands the same decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.scheduling.course import Block
from benchmarks.scheduling.peer import Peer
from benchmarks.scheduling.workloads import Workload


class DifferentDecisionsError(RuntimeError):
    """Two schedulers did not do the same work, so their times cannot be compared."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One scheduler's times on a workload, in µs of thread CPU."""

    name: str
    blocks: list[Block]

    @property
    def schedule_us(self) -> float:
        """Median of `schedule()`."""
        return float(np.median(self._all("schedule_ns")))

    @property
    def update_us(self) -> float:
        """Median of the update."""
        return float(np.median(self._all("update_ns")))

    @property
    def steps_us(self) -> np.ndarray:
        """Each step: `schedule()` and its update."""
        return self._all("schedule_ns") + self._all("update_ns")

    @property
    def step_us(self) -> float:
        """Median of a step."""
        return float(np.median(self.steps_us))

    @property
    def arrival_us(self) -> float | None:
        """Mean of building and queueing a request; None where nobody arrived."""
        arrivals = self._all("arrival_ns")
        return float(arrivals.mean()) if len(arrivals) else None

    @property
    def preempting_us(self) -> float | None:
        """Median of the steps that preempt; None where none did."""
        preempts = np.concatenate([block.num_preempted for block in self.blocks]) > 0
        return float(np.median(self.steps_us[preempts])) if preempts.any() else None

    def resampled_us(self, draws: np.ndarray) -> np.ndarray:
        """Returns the median step of each draw of blocks (`[num_draws, num_blocks]` indices)."""
        steps = [Timing(self.name, [block]).steps_us for block in self.blocks]
        return np.array([np.median(np.concatenate([steps[i] for i in draw])) for draw in draws])

    def _all(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(block, name) for block in self.blocks]) / 1000


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a workload: the first timing is ours with recording off."""

    workload: Workload
    timings: list[Timing]

    def timing(self, peer: Peer | None) -> Timing | None:
        """Returns a peer's timing; None if it did not run."""
        named = {timing.name: timing for timing in self.timings}
        return None if peer is None else named.get(peer.name)

    @property
    def num_steps(self) -> int:
        """Steps that were timed on each side."""
        return len(self.timings[0].steps_us)

    def total(self, count: str) -> int:
        """Returns a count of `Block` over all timed steps; it is the same on all sides."""
        return sum(sum(getattr(block, count)) for block in self.timings[0].blocks)


def compare(workload: Workload, peers: Sequence[Peer]) -> Result:
    """Runs a workload on all peers, alternating block by block.

    Raises:
        DifferentDecisionsError: They decided differently.
    """
    checksums = {peer.name: peer.open(workload) for peer in peers}
    _require_same(workload, "its warm-up, request by request", checksums)
    timings = [Timing(peer.name, []) for peer in peers]
    for number in range(workload.num_blocks):
        turns = list(zip(peers, timings, strict=True))
        for peer, timing in turns if number % 2 == 0 else reversed(turns):
            timing.blocks.append(peer.measure())
        for count in ("num_tokens", "num_preempted", "num_requests"):
            counts = {timing.name: getattr(timing.blocks[-1], count) for timing in timings}
            _require_same(workload, f"{count} in the steps of block {number}", counts)
    for peer in peers:
        peer.close()
    return Result(workload, timings)


def ratio_interval(ours: Timing, theirs: Timing, num_draws: int = 1000) -> tuple[float, float]:
    """Returns the 95 % interval of ours over theirs, from resampling pairs of blocks."""
    num_blocks = len(ours.blocks)
    draws = np.random.default_rng(0).integers(num_blocks, size=(num_draws, num_blocks))
    ratios = ours.resampled_us(draws) / theirs.resampled_us(draws)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)


def _require_same(workload: Workload, what: str, seen: Mapping[str, object]) -> None:
    values = list(seen.values())
    if any(value != values[0] for value in values):
        raise DifferentDecisionsError(
            f"{workload.name} with {workload.running:,} requests, prefix caching "
            f"{'on' if workload.prefix_caching else 'off'}: {what}, differs: {seen}"
        )
