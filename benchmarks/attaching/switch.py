"""Turns recording off and on every few steps of one running vLLM, and times each step.

A general plug-in of vLLM for the benchmark alone. Off is vLLM's own code and nothing else: the
scheduler is given back the class that it would have had, and the methods that were hooked on its
parts are vLLM's again. The steps are timed on both sides by the same two clock readings. What was
not heard while it was off is wrong in the record (free blocks by kind): it is not read.

`RECORDING_SWITCH` names the folder for what was measured, a JSON line a block of steps. The plug-in
that records must be loaded too; without it the benchmark ends with an error.
"""

from __future__ import annotations

import functools
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

STEPS_A_BLOCK = 64
PARTS = (
    "kv_cache_manager",
    "kv_cache_manager.block_pool",
    "kv_cache_manager.block_pool.free_block_queue",
    "connector",
    "encoder_cache_manager",
    "ec_connector",
)
"""Parts of a scheduler whose methods the plug-in hooks one by one."""


def register() -> None:
    """Has the engine core's steps switched and timed; vLLM calls it in each of its processes."""
    folder = os.environ.get("RECORDING_SWITCH")
    if folder is None:
        return
    from vllm.v1.engine.core import EngineCore

    original = EngineCore.step
    switches: dict[int, Switch] = {}

    @functools.wraps(original)
    def step(core: Any) -> Any:
        switch = switches.get(id(core))
        if switch is None:
            switch = switches[id(core)] = Switch(core.scheduler, Path(folder))
        switch.begin_step()
        return original(core)

    EngineCore.step = step


@dataclass(slots=True)
class Block:
    """Steps in a row under one setting; times in ns."""

    is_on: bool
    began: list[int] = field(default_factory=list)
    schedule: list[int] = field(default_factory=list)
    update: list[int] = field(default_factory=list)
    states: set[tuple[int, int, int]] = field(default_factory=set)
    """Running and waiting requests and scheduled tokens: one entry where nothing changed."""

    def line(self, end: int) -> str:
        """Returns the block as JSON, given when the step after it began."""
        ends = [*self.began[1:], end]
        wall = [after - before for before, after in zip(self.began, ends, strict=True)]
        states = sorted(self.states)
        cpu = {"schedule": self.schedule, "update": self.update}
        return json.dumps({"on": self.is_on, **cpu, "wall": wall, "states": states})


class Switch:
    """The recording of one scheduler, and the clock beside it."""

    def __init__(self, scheduler: Any, folder: Path) -> None:
        self._scheduler = scheduler
        self._recording = type(scheduler)
        self._plain = self._recording.__mro__[1]
        if getattr(scheduler, "_stepscope", None) is None:
            raise RuntimeError("the scheduler is not recorded: is STEPSCOPE_LOG set?")
        self._hooked = hooked_methods(scheduler)
        self._file: IO[str] = (folder / f"{os.getpid()}.jsonl").open("w", buffering=1)
        self._random = random.Random(0)
        self._order: list[bool] = []
        self._block = self._next_block()
        self._time("schedule", lambda: self._block.schedule)
        self._time("update_from_output", lambda: self._block.update)

    def begin_step(self) -> None:
        """Takes down the step before, and switches where a block is complete."""
        now, block = time.perf_counter_ns(), self._block
        if len(block.began) == STEPS_A_BLOCK:
            self._file.write(block.line(now) + "\n")
            block = self._block = self._next_block()
            now = time.perf_counter_ns()
        block.began.append(now)

    def _next_block(self) -> Block:
        if not self._order:
            self._order = [True, False]
            self._random.shuffle(self._order)
        is_on = self._order.pop()
        self._scheduler.__class__ = self._recording if is_on else self._plain
        for part, name, method in self._hooked:
            if is_on:
                setattr(part, name, method)
            else:
                vars(part).pop(name, None)
        return Block(is_on)

    def _time(self, name: str, times: Callable[[], list[int]]) -> None:
        """Has the thread's CPU time of one method of the scheduler taken down."""
        scheduler, clock = self._scheduler, time.thread_time_ns

        def timed(*args: Any) -> Any:
            begin = clock()
            result = getattr(type(scheduler), name)(scheduler, *args)
            times().append(clock() - begin)
            if name == "schedule":
                self._block.states.add(state_of(scheduler, result))
            return result

        setattr(scheduler, name, timed)


def hooked_methods(scheduler: Any) -> list[tuple[Any, str, Any]]:
    """Returns the methods that stand on the scheduler's parts in place of their classes' own."""
    parts = [part_of(scheduler, name) for name in PARTS]
    return [
        (part, name, method)
        for part in parts
        if part is not None
        for name, method in vars(part).items()
        if callable(method) and hasattr(method, "__wrapped__") and hasattr(type(part), name)
    ]


def part_of(scheduler: Any, name: str) -> Any:
    """Returns a part of the scheduler by its dotted name; `None` where it has none."""
    return functools.reduce(
        lambda owner, step: getattr(owner, step, None), name.split("."), scheduler
    )


def state_of(scheduler: Any, output: Any) -> tuple[int, int, int]:
    """Returns how many run, how many wait, and what the step was given."""
    return *scheduler.get_request_counts(), output.total_num_scheduled_tokens
