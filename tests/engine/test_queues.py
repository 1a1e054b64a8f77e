"""The queues of waiting requests: their order, whatever comes, goes and is removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import Policy
from engine.request import Request
from engine.sampling import SamplingParams
from engine.scheduler.queues import FcfsQueue, PriorityQueue, RequestQueue, make_queue
from engine.scheduler.skipped import SkippedRequests
from engine.session import Session
from telemetry.vocabulary import SkipReason


def request(name: str, *, priority: int = 0, **fields: object) -> Request:
    return Request(
        name,
        number=0,
        prompt_token_ids=[1],
        sampling=SamplingParams(max_tokens=1),
        priority=priority,
        **fields,  # type: ignore[arg-type]
    )


def names(queue: RequestQueue) -> str:
    return "".join(request.request_id for request in queue)


def filled(policy: Policy, letters: str) -> tuple[RequestQueue, dict[str, Request]]:
    queue, requests = make_queue(policy), {letter: request(letter) for letter in letters}
    for each in requests.values():
        queue.add(each)
    return queue, requests


def test_whoever_is_put_back_goes_to_the_front() -> None:
    queue, _ = filled("fcfs", "abcd")
    aside = [queue.pop(), queue.pop()]
    for each in reversed(aside):
        queue.put_back(each)
    assert names(queue) == "abcd"
    queue.put_back(request("v"))
    assert names(queue) == "vabcd"


def test_those_behind_a_removed_one_keep_their_order() -> None:
    queue, requests = filled("fcfs", "abcde")
    queue.remove([requests["b"], requests["d"], request("stranger")])
    assert (names(queue), len(queue)) == ("ace", 3)
    assert queue.near_head(2) == [requests["a"], requests["c"]]


def test_a_removed_request_is_never_the_head() -> None:
    queue, requests = filled("priority", "abc")
    queue.remove([requests["a"]])
    assert queue.peek() is requests["b"]
    assert queue.near_head(1) == [requests["b"]]


def test_an_id_can_come_again_while_the_old_one_lies_in_the_heap() -> None:
    """Both stand at the same place in the order, and requests themselves cannot be compared."""
    queue, requests = filled("priority", "abc")
    queue.remove([requests["c"]])
    again = request("c")
    queue.add(again)
    assert [queue.pop() for _ in range(3)] == [requests["a"], requests["b"], again]
    assert queue.peek() is None


def test_removed_requests_do_not_pile_up() -> None:
    queue = PriorityQueue()
    first = request("first", priority=-1)
    queue.add(first)
    for index in range(1_000):
        each = request(str(index))
        queue.add(each)
        queue.remove([each])
    assert len(queue._heap) <= 3
    assert queue.peek() is first


Moves = st.lists(
    st.tuples(st.sampled_from(["add", "put_back", "pop", "remove"]), st.integers(0, 9)),
    max_size=60,
)


class Model:
    """The queues' contract at its plainest: a list."""

    def __init__(self, policy: Policy) -> None:
        self._is_sorted = policy == "priority"
        self.requests: list[Request] = []

    def put(self, each: Request, *, at_front: bool) -> None:
        self.requests.insert(0 if at_front else len(self.requests), each)
        if self._is_sorted:
            self.requests.sort(key=lambda r: (*r.urgency, r.request_id))


def moves_on(queue: RequestQueue, model: Model, moves: list[tuple[str, int]]) -> Iterator[None]:
    """Does the moves on both; a request that has left may come back, as victims do."""
    gone: list[Request] = []
    for count, (move, number) in enumerate(moves):
        if move in ("add", "put_back"):
            each = request(f"r{count:02}", priority=number % 3)
            if move == "put_back" and gone:
                each = gone.pop(number % len(gone))
            (queue.add if move == "add" else queue.put_back)(each)
            model.put(each, at_front=move == "put_back")
        elif move == "pop" and model.requests:
            assert queue.pop() is model.requests[0]
            gone.append(model.requests.pop(0))
        elif move == "remove":
            removed = model.requests[number :: number + 1]
            queue.remove(removed)
            model.requests = [each for each in model.requests if each not in removed]
            gone += removed
        yield


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@given(moves=Moves)
def test_a_queue_is_a_list_in_the_order_of_its_policy(
    policy: Policy, moves: list[tuple[str, int]]
) -> None:
    queue, model = make_queue(policy), Model(policy)
    for _ in moves_on(queue, model, moves):
        assert list(queue) == model.requests
        assert len(queue) == len(model.requests)
        assert queue.peek() is (model.requests[0] if model.requests else None)
        near = queue.near_head(3)
        assert near[:1] == model.requests[:1]
        assert len(near) == min(3, len(model.requests))
        assert set(near) <= set(model.requests)


def test_near_the_head_of_first_come_is_exact() -> None:
    queue = FcfsQueue()
    requests = [request(str(index)) for index in range(5)]
    for each in requests:
        queue.add(each)
    assert queue.near_head(3) == requests[:3]


def test_blocked_sessions_are_counted_and_nobody_else() -> None:
    skipped = SkippedRequests()
    blocked = SkipReason.streaming_input
    session = request("s", session=Session(), blocked_by=blocked)
    for each in (session, request("t", session=Session()), request("u", blocked_by=blocked)):
        skipped.add(each)
    assert (len(skipped), skipped.num_idle_sessions) == (3, 1)
    session.blocked_by = None
    assert skipped.num_idle_sessions == 0
    session.blocked_by = blocked
    skipped.discard(session)
    assert (session in skipped, len(skipped), skipped.num_idle_sessions) == (False, 2, 0)


def test_who_is_less_urgent_now_falls_behind_unless_it_is_the_head() -> None:
    queue = PriorityQueue()
    requests = [request(str(index), arrival_time=float(index)) for index in range(3)]
    for each in requests:
        queue.add(each)
    for each in requests[:2]:
        each.arrival_time += 10
        queue.rekey(each)
    assert [queue.pop() for _ in requests] == [requests[0], requests[2], requests[1]]
