"""Whether clients wait for their answers is told by when requests come after an end."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from diagnose.replay import Clients, WorkRequest
from diagnose.replay.client_loop import detect_clients

SECOND = 1_000_000_000


def detected(times: Sequence[tuple[float, float | None]]) -> Clients:
    """What is said of requests that came and ended at these seconds."""
    ordered = sorted(times)
    works = [
        WorkRequest(number=n, arrived_ns=int(at * SECOND), num_prompt_tokens=1, num_output_tokens=1)
        for n, (at, _) in enumerate(ordered)
    ]
    return detect_clients(works, [end and int(end * SECOND) for _, end in ordered])


def loop(
    num_clients: int, count: int, *, pause: float, random: Random
) -> list[tuple[float, float]]:
    free = [random.uniform(0, 0.02) for _ in range(num_clients)]
    times = []
    for _ in range(count):
        at = min(free)
        end = at + random.uniform(0.5, 2.0)
        free[free.index(at)] = end + random.uniform(0.5, 1.5) * pause
        times.append((at, end))
    return times


def test_clients_that_wait_are_counted() -> None:
    found = detected(loop(12, 200, pause=0.004, random=Random(1)))
    assert (found.kind, found.num_in_flight) == ("closed", 12)
    assert 0.002 < sum(found.think_ns) / len(found.think_ns) / SECOND < 0.008


def test_arrivals_by_chance_are_an_open_loop() -> None:
    random, at, times = Random(2), 0.0, []
    for _ in range(200):
        at += random.expovariate(8.0)
        times.append((at, at + random.uniform(0.5, 2.0)))
    assert detected(times).kind == "open"


def test_regular_arrivals_are_an_open_loop() -> None:
    random = Random(3)
    times = [(n / 8, n / 8 + random.uniform(0.5, 2.0)) for n in range(200)]
    assert detected(times).kind == "open"


def test_one_burst_says_nothing() -> None:
    found = detected([(n / 1000, 2.0 + n / 10) for n in range(100)])
    assert found.kind == "open"
    assert "too few to tell a loop by" in found.reason


def test_answers_that_end_together_are_a_loop_all_the_same() -> None:
    times = [
        (round_ * 2.0 + n / 1000, round_ * 2.0 + 1.98) for round_ in range(9) for n in range(8)
    ]
    assert detected(times).kind == "closed"


def test_requests_that_never_end_are_an_open_loop() -> None:
    assert detected([(n / 10, None) for n in range(50)]).kind == "open"


def test_clients_that_get_their_answers_late_are_a_loop() -> None:
    found = detected(loop(28, 300, pause=0.12, random=Random(4)))
    assert (found.kind, found.num_in_flight) == ("closed", 28)
    assert "were in flight" in found.reason


def test_clients_that_think_long_are_not_told_apart() -> None:
    assert detected(loop(28, 300, pause=1.5, random=Random(5))).kind == "open"


def test_arrivals_by_the_clock_with_equal_answers_are_an_open_loop() -> None:
    assert detected([(n / 8, n / 8 + 1.27) for n in range(200)]).kind == "open"


@pytest.mark.parametrize("rate", [11.0, 12.0, 16.0, 20.0, 30.0, 100.0])
@pytest.mark.parametrize("seed", range(5))
def test_more_than_can_be_served_is_an_open_loop(rate: float, seed: int) -> None:
    random, at, free, times = Random(seed), 0.0, 0.0, []
    for _ in range(200):
        at += random.expovariate(rate)
        free = max(free, at) + random.uniform(0.05, 0.15)
        times.append((at, free))
    assert detected(times).kind == "open"
