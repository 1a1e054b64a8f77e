"""The scan of the waiting requests: bounded work, and the right head, in either kind of queue."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import pytest

from telemetry.sources.vllm.lives import Lives
from telemetry.sources.vllm.waiting import MAX_LOOKED_AT, WaitingScan, _first_left
from telemetry.vocabulary import SkipReason


class Status(Enum):
    WAITING_FOR_REMOTE_KVS = auto()
    WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR = auto()
    WAITING_FOR_STREAMING_REQ = auto()


@dataclass(eq=False)
class Request:
    """A waiting request, in the order of its number."""

    number: int
    status: Status = Status.WAITING_FOR_REMOTE_KVS
    num_computed_tokens: int = 0
    lora_request: Any = None
    request_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.request_id = str(self.number)

    def __lt__(self, other: Request) -> bool:
        return self.number < other.number


class Stage:
    """A scan over so many requests that all wait for their KV."""

    def __init__(self, number_of: int) -> None:
        lives = Lives()
        self.requests = [Request(number) for number in range(number_of)]
        for request in self.requests:
            lives.born(request, 0)
        self.told: list[list[int]] = []
        scheduler = SimpleNamespace(lora_config=None)
        self.scan = WaitingScan(scheduler, lives, Status, self._told)

    def _told(self, life: Any, reason: SkipReason) -> None:
        assert reason is SkipReason.remote_kv_loading
        self.told[-1].append(life.number)

    def step(self) -> None:
        self.told.append([])
        self.scan.begin()
        for request in self.requests:
            self.scan.blocked(request)


def test_one_step_looks_at_so_many_and_no_more() -> None:
    stage = Stage(10 * MAX_LOOKED_AT)
    stage.step()
    assert len(stage.told[0]) == MAX_LOOKED_AT


@pytest.mark.parametrize("number_of", [1, MAX_LOOKED_AT, MAX_LOOKED_AT + 1, 5 * MAX_LOOKED_AT - 3])
def test_everybody_has_a_turn(number_of: int) -> None:
    stage = Stage(number_of)
    for _ in range(-(-number_of // MAX_LOOKED_AT)):
        stage.step()
    assert sorted(sum(stage.told, [])) == list(range(number_of))  # noqa: RUF017


def test_a_reason_that_has_not_changed_is_not_told_again() -> None:
    stage = Stage(3)
    stage.step()
    stage.step()
    assert stage.told == [[0, 1, 2], []]


def test_the_head_of_a_first_come_queue_stands_behind_those_set_aside() -> None:
    requests = [Request(number) for number in range(5)]
    assert _first_left(deque(requests), requests[:2], 2) is requests[2]


@pytest.mark.parametrize("seed", range(20))
def test_the_head_of_a_heap_is_its_least_that_was_not_set_aside(seed: int) -> None:
    r = random.Random(seed)
    requests = [Request(number) for number in range(r.randrange(2, 40))]
    heap = r.sample(requests, len(requests))
    heapq.heapify(heap)
    aside = requests[: r.randrange(len(requests))]
    found = _first_left(SimpleNamespace(_heap=heap), aside, len(aside))
    assert found is requests[len(aside)]
