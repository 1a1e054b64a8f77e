"""What vLLM itself says of a step, to be compared with what was recorded of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class StepTruth:
    """One step, as the scheduler's own outputs and queues have it."""

    scheduled: dict[str, int]
    preempted: list[tuple[str, int]]
    """Who was preempted since the last step was decided, and computed tokens just before."""
    waiting: list[str]
    num_free: int
    num_free_cached: int
    sampled: dict[str, int] = field(default_factory=dict)
    finished: list[tuple[str, str]] = field(default_factory=list)
