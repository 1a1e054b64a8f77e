"""The order in which waiting requests are looked at."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from engine.config import Policy
from engine.request import Request


class RequestQueue(Protocol):
    """Waiting requests in the order of their policy."""

    def add(self, request: Request) -> None:
        """Puts a newcomer in its place."""

    def put_back(self, request: Request) -> None:
        """Returns a request that had left: a victim, or one that was set aside."""

    def peek(self) -> Request | None:
        """Returns the head; None where nobody waits."""

    def pop(self) -> Request:
        """Removes and returns the head."""

    def remove(self, requests: Iterable[Request]) -> None:
        """Removes requests wherever they stand."""

    def near_head(self, count: int) -> list[Request]:
        """Returns the head and some of those behind it, cheaply; their order is not exact."""

    def __iter__(self) -> Iterator[Request]:
        """Yields the requests in the order in which they would be popped."""

    def __len__(self) -> int: ...


class FcfsQueue:
    """First come, first served; whoever is put back goes to the front."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def add(self, request: Request) -> None:
        self._requests.append(request)

    def put_back(self, request: Request) -> None:
        self._requests.appendleft(request)

    def peek(self) -> Request | None:
        return self._requests[0] if self._requests else None

    def pop(self) -> Request:
        return self._requests.popleft()

    def remove(self, requests: Iterable[Request]) -> None:
        gone = set(requests)
        self._requests = deque(r for r in self._requests if r not in gone)

    def near_head(self, count: int) -> list[Request]:
        return list(islice(self._requests, count))

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)


class PriorityQueue:
    """Most urgent first: by priority, then arrival, then id. A victim gets no better place."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, float, str], Request]] = []

    def add(self, request: Request) -> None:
        heapq.heappush(self._heap, ((*request.urgency, request.request_id), request))

    put_back = add

    def peek(self) -> Request | None:
        return self._heap[0][1] if self._heap else None

    def pop(self) -> Request:
        return heapq.heappop(self._heap)[1]

    def remove(self, requests: Iterable[Request]) -> None:
        gone = set(requests)
        self._heap = [entry for entry in self._heap if entry[1] not in gone]
        heapq.heapify(self._heap)

    def near_head(self, count: int) -> list[Request]:
        return [request for _, request in self._heap[:count]]

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in sorted(self._heap, key=lambda entry: entry[0]))

    def __len__(self) -> int:
        return len(self._heap)


def make_queue(policy: Policy) -> RequestQueue:
    """Returns an empty queue of the policy."""
    return PriorityQueue() if policy == "priority" else FcfsQueue()


def choose_victim(policy: Policy, running: list[Request]) -> Request:
    """Returns who has to go when a running request finds no block.

    First come, first served: the last of the running list. Priority: the least urgent; among
    equals the first in the list.
    """
    if policy == "priority":
        return max(running, key=lambda request: request.urgency)
    return running[-1]
