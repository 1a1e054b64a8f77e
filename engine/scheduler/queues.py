"""The order in which waiting requests are looked at."""

from __future__ import annotations

import heapq
from collections import OrderedDict
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

    def rekey(self, request: Request) -> None:
        """Takes in that a request's urgency has changed; it only moves when those around it do."""

    def near_head(self, count: int) -> list[Request]:
        """Returns the head and some of those behind it, cheaply; their order is not exact."""

    def __iter__(self) -> Iterator[Request]:
        """Yields the requests in the order in which they would be popped."""

    def __len__(self) -> int: ...


class FcfsQueue:
    """First come, first served; whoever is put back goes to the front."""

    def __init__(self) -> None:
        self._requests: OrderedDict[Request, None] = OrderedDict()

    def add(self, request: Request) -> None:
        self._requests[request] = None

    def put_back(self, request: Request) -> None:
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)

    def peek(self) -> Request | None:
        return next(iter(self._requests), None)

    def pop(self) -> Request:
        return self._requests.popitem(last=False)[0]

    def remove(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self._requests.pop(request, None)

    def rekey(self, request: Request) -> None:
        """Nothing: urgency is not what this order is about."""

    def near_head(self, count: int) -> list[Request]:
        return list(islice(self._requests, count))

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)


_Entry = tuple[tuple[int, float, str], int, Request]
"""Where a request stands by the priority policy, a number that no other has, and the request."""


class PriorityQueue:
    """Most urgent first: by priority, then arrival, then id. A victim gets no better place.

    Who is removed stays in the heap until it comes to the top, or until half of the heap is such.
    Whose urgency has changed finds its place as others leave: at the latest when one is removed.

    Invariants:
        The first of the heap is not one that was removed.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[Request, _Entry] = {}
        self._num_added = 0
        self._is_rekeyed = False

    def add(self, request: Request) -> None:
        heapq.heappush(self._heap, self._enter(request))

    put_back = add

    def _enter(self, request: Request) -> _Entry:
        self._num_added += 1
        entry = ((*request.urgency, request.request_id), self._num_added, request)
        self._entries[request] = entry
        return entry

    def rekey(self, request: Request) -> None:
        place = self._heap.index(self._entries[request])
        self._heap[place] = self._enter(request)
        self._is_rekeyed = True

    def peek(self) -> Request | None:
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Request:
        request = heapq.heappop(self._heap)[2]
        del self._entries[request]
        self._drop_removed()
        return request

    def remove(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self._entries.pop(request, None)
        if self._is_rekeyed or len(self._heap) > 2 * len(self._entries):
            self._heap = list(filter(self._is_in, self._heap))
            heapq.heapify(self._heap)
            self._is_rekeyed = False
        self._drop_removed()

    def _drop_removed(self) -> None:
        while self._heap and not self._is_in(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_in(self, entry: _Entry) -> bool:
        return self._entries.get(entry[2]) is entry

    def near_head(self, count: int) -> list[Request]:
        return [request for *_, request in islice(filter(self._is_in, self._heap), count)]

    def __iter__(self) -> Iterator[Request]:
        heap = list(self._heap)
        while heap:
            entry = heapq.heappop(heap)
            if self._is_in(entry):
                yield entry[2]

    def __len__(self) -> int:
        return len(self._entries)


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
