"""One workload on its way through one scheduler, timed step by step.

Times are CPU time of this thread, so that other processes do not count. `schedule()` and the update
are timed apart, arrivals (building and queueing a request) apart from both; what stands for the
model in between is not timed. Runs on both sides: standard library only.

The garbage collector stays on, as in an engine; what is alive at the beginning of a block is frozen
out of its sight, as vLLM's own engine does once it has started.
"""

from __future__ import annotations

import gc
import time
import zlib
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.scheduling.workloads import NewRequest, Workload

LEAD_IN_STEPS = 4
"""Steps at the beginning of a block that are not timed: the other side has emptied the caches."""


class Side(Protocol):
    """A scheduler as a course drives it."""

    schedule: Callable[[], Any]
    update: Callable[[Any, Any], Sized]
    """Takes a step's output and its answer; returns new ids and finish reasons."""

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""

    def add(self, new: NewRequest) -> None:
        """Builds a request and queues it."""

    def answer(self, output: Any, token_id: int) -> Any:
        """Returns what a model would: this token for each that reached its newest one."""

    def num_scheduled_tokens(self, output: Any) -> int:
        """Tokens of the step."""

    def num_preempted(self, output: Any) -> int:
        """Preemptions of the step."""

    def decisions(self, output: Any, results: Any) -> object:
        """Returns all that was decided, the same `repr` on both sides if it is the same."""


@dataclass(slots=True)
class Block:
    """Steps in a row: what was timed (ns), and per step what was decided."""

    schedule_ns: list[int] = field(default_factory=list)
    update_ns: list[int] = field(default_factory=list)
    arrival_ns: list[int] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    num_preempted: list[int] = field(default_factory=list)
    num_requests: list[int] = field(default_factory=list)


class Course:
    """A workload and the scheduler that works on it.

    Args:
        make_side: returns an empty scheduler with the workload's settings.
    """

    def __init__(self, workload: Workload, make_side: Callable[[Workload], Side]) -> None:
        self._workload = workload
        self._make_side = make_side
        self._side: Side
        self._num_added = self._num_steps = 0

    def warm_up(self) -> int:
        """Runs to where the measurement begins; returns a checksum of all decisions so far."""
        self._begin()
        checksum = 0
        while self._goes_on(self._workload.warm_up_steps):
            checksum = zlib.crc32(repr(self._observed_step()).encode(), checksum)
        return checksum

    def measure(self) -> Block:
        """Runs one block."""
        load, block = self._workload, Block()
        if load.drains:
            self._begin()
        else:
            for _ in range(LEAD_IN_STEPS):
                self._timed_step(Block())
        gc.collect()
        gc.freeze()
        last = self._num_steps + load.steps_a_block
        while self._goes_on(last):
            self._timed_step(block)
        gc.unfreeze()
        return block

    def _begin(self) -> None:
        self._side = self._make_side(self._workload)
        self._num_added = self._num_steps = 0
        for new in self._workload.first_requests():
            self._side.add(new)
            self._num_added += 1

    def _goes_on(self, last_step: int) -> bool:
        if self._workload.drains:
            return self._side.num_requests > 0
        return self._num_steps < last_step

    def _observed_step(self) -> object:
        side = self._side
        output = side.schedule()
        results = side.update(output, side.answer(output, self._next_token()))
        seen = side.decisions(output, results)
        self._replace_finished(Block())
        return seen

    def _timed_step(self, block: Block) -> None:
        side, now = self._side, time.thread_time_ns
        schedule, update = side.schedule, side.update
        begin = now()
        output = schedule()
        scheduled = now()
        answer = side.answer(output, self._next_token())
        resumed = now()
        len(update(output, answer))
        updated = now()
        block.schedule_ns.append(scheduled - begin)
        block.update_ns.append(updated - resumed)
        block.num_tokens.append(side.num_scheduled_tokens(output))
        block.num_preempted.append(side.num_preempted(output))
        block.num_requests.append(side.num_requests)
        self._replace_finished(block)

    def _next_token(self) -> int:
        self._num_steps += 1
        return 6 + self._num_steps

    def _replace_finished(self, block: Block) -> None:
        if not self._workload.replaces_finished:
            return
        load, side, now = self._workload, self._side, time.thread_time_ns
        population = load.running + load.num_long
        for _ in range(population - side.num_requests):
            new = load.request(self._num_added)
            begin = now()
            side.add(new)
            block.arrival_ns.append(now() - begin)
            self._num_added += 1
