"""What the two schedulers are given: settings, and requests by number.

A workload says everything in advance: both sides see the same requests with the same tokens in the
same step, so they have to decide alike. Standard library only: this runs in vLLM's Python too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

BLOCK_SIZE = 16
MAX_MODEL_LEN = 4096
ENDLESS = 3000
"""Outputs of a request that does not end while it is watched."""
NUM_LONG = 8
STORM_SIZE = 256
SIZES = (1, 16, 64, 256, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request as a server hands it in; its prompt is a run of consecutive token ids."""

    index: int
    prompt: list[int]
    max_tokens: int
    priority: int = 0
    waits_for_grammar: bool = False

    @property
    def request_id(self) -> str:
        """Its name, of the length that a server would give it."""
        return f"req-{self.index:08d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Settings of a scheduler, the requests it gets, and how long it is watched.

    `running` requests are there from the beginning, with `max_tokens` outputs each; None is 64 to
    192. With `replaces_finished` each that ends is followed by a new one before the next step.
    `num_long` more have prompts of 2,000 to 4,000 tokens and few outputs; `num_waiting` more find
    the running list full (but for `room`). One that `drains` is run from its first step to its
    last, anew for each block; the others run on from block to block.
    """

    name: str
    running: int
    prefix_caching: bool
    max_tokens: int | None
    num_gpu_blocks: int
    max_num_batched_tokens: int
    policy: Literal["fcfs", "priority"] = "fcfs"
    reserves_full_prompt: bool = True
    replaces_finished: bool = False
    drains: bool = False
    num_long: int = 0
    num_waiting: int = 0
    waits_for_grammar: bool = False
    room: int = 0
    warm_up_steps: int = 32
    num_blocks: int = 8
    steps_a_block: int = 48

    @property
    def max_num_seqs(self) -> int:
        """Requests that may run at once."""
        return self.running + self.num_long + self.room

    def first_requests(self) -> Iterator[NewRequest]:
        """Gives the requests that are there before the first step."""
        for index in range(self.running + self.num_long + self.num_waiting):
            yield self.request(index)

    def request(self, index: int) -> NewRequest:
        """Returns the request with this number; no two share a block of their prompts."""
        if self.num_long and index >= self.running:
            return _long(index)
        return NewRequest(
            index=index,
            prompt=_prompt(index, 64 + index % 16),
            max_tokens=self.max_tokens or _varied(index, self.running),
            priority=index % 4 if self.policy == "priority" else 0,
            waits_for_grammar=self.waits_for_grammar and index >= self.running,
        )


def _prompt(index: int, length: int) -> list[int]:
    first = 1000 + index * 200
    return list(range(first, first + length))


def _long(index: int) -> NewRequest:
    first = 10_000_000 + index * 5000
    prompt = list(range(first, first + 2000 + index * 613 % 2001))
    return NewRequest(index=index, prompt=prompt, max_tokens=4 + index % 8)


def _varied(index: int, running: int) -> int:
    """Outputs of 64 to 192 tokens; the first requests are caught somewhere in their lives."""
    length = 64 + index * 37 % 129
    return 1 + index * 61 % length if index < running else length


def _steps_a_block(running: int) -> int:
    """A multiple of the block size, so that each block of steps has the same share of crossings."""
    return 32 if running > 256 else 48


def decode(running: int, prefix_caching: bool) -> Workload:
    """One token each a step, nothing else; a sixteenth of the requests begins a block."""
    return Workload(
        name="decode",
        running=running,
        prefix_caching=prefix_caching,
        max_tokens=ENDLESS,
        num_gpu_blocks=running * 60 + 10,
        max_num_batched_tokens=max(8192, running * 8),
        steps_a_block=_steps_a_block(running),
    )


def closed_loop(running: int, prefix_caching: bool, *, scarce: bool) -> Workload:
    """Who ends is replaced at once. Scarce: memory for about two thirds, so it keeps preempting."""
    return Workload(
        name="closed_loop_scarce" if scarce else "closed_loop_ample",
        running=running,
        prefix_caching=prefix_caching,
        max_tokens=None,
        num_gpu_blocks=running * (6 if scarce else 20) + 10,
        max_num_batched_tokens=max(8192, running * 8),
        steps_a_block=_steps_a_block(running),
        reserves_full_prompt=not scarce,
        replaces_finished=True,
        warm_up_steps=96,
    )


def preemption_storm(
    running: int, prefix_caching: bool, policy: Literal["fcfs", "priority"] = "fcfs"
) -> Workload:
    """All at once into memory for half of what they will need, until the last has ended."""
    return Workload(
        name="preemption_storm" if policy == "fcfs" else "storm_by_priority",
        running=running,
        prefix_caching=prefix_caching,
        max_tokens=120,
        num_gpu_blocks=running * 6,
        max_num_batched_tokens=2048,
        policy=policy,
        reserves_full_prompt=False,
        drains=True,
        num_blocks=5,
    )


def mixed_prefill(running: int, prefix_caching: bool) -> Workload:
    """Decodes, and long prompts in chunks that fill each step up to 2,048 tokens."""
    return Workload(
        name="mixed_prefill",
        running=running,
        prefix_caching=prefix_caching,
        max_tokens=ENDLESS,
        num_gpu_blocks=running * 60 + NUM_LONG * (MAX_MODEL_LEN // BLOCK_SIZE) + 10,
        max_num_batched_tokens=2048,
        replaces_finished=True,
        num_long=NUM_LONG,
        warm_up_steps=128,
        steps_a_block=_steps_a_block(running),
    )


def waiting(num_waiting: int, *, aside: bool = False, room: int = 0) -> Workload:
    """64 decodes, and a queue that nobody is admitted from.

    `aside`: all of the queue waits for grammars that never come. `room`: the running list is not
    full, so each step has to look for somebody it could admit.
    """
    return replace(
        decode(64, True),
        name="waiting",
        num_waiting=num_waiting,
        waits_for_grammar=aside,
        room=room,
        num_blocks=4,
    )


def compared() -> list[Workload]:
    """Returns the workloads of the comparison, as the JSON lists them."""
    both = (False, True)
    loops = [closed_loop(n, c, scarce=s) for s in both for c in both for n in SIZES[1:]]
    return [
        *(decode(n, cached) for cached in both for n in SIZES),
        *loops,
        *(preemption_storm(STORM_SIZE, cached) for cached in both),
        *(mixed_prefill(n, cached) for cached in both for n in SIZES[1:]),
    ]


def only_printed() -> list[Workload]:
    """Returns those that stand in the table for people alone."""
    return [preemption_storm(STORM_SIZE, cached, "priority") for cached in (False, True)]


def queues() -> list[Workload]:
    """Returns what shows how a step grows with those who wait."""
    return [
        *(waiting(num) for num in (0, 100, 1_000, 10_000)),
        waiting(10_000, aside=True),
        *(waiting(num, aside=True, room=1) for num in (100, 1_000, 10_000)),
    ]


def quick() -> list[Workload]:
    """Returns small ones of each kind, to see that everything works."""
    small = [
        decode(4, True),
        closed_loop(8, True, scarce=False),
        closed_loop(16, True, scarce=True),
        preemption_storm(16, True),
        mixed_prefill(4, False),
    ]
    return [replace(load, num_blocks=2, steps_a_block=8) for load in small]
