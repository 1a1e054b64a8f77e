"""dp-rank-imbalance: engines of one model beside each other."""

from __future__ import annotations

import pytest

from diagnose.finding import Finding, Healthy, NotMeasured, RuleVerdict
from tests.diagnose.logs import log_of, verdict_of
from tests.diagnose.step_rules.states import SECOND, LogBuilder, lasting


def of_rank_1(*logs: LogBuilder) -> RuleVerdict:
    return verdict_of(log_of(*logs), "dp-rank-imbalance")


def rank(engine: int, seconds: float = 61, *, after: float = 0, **columns: int) -> LogBuilder:
    log = LogBuilder(engine).described(model="m").advance(round(after * SECOND))
    return lasting(log, seconds, **columns)


@pytest.mark.parametrize(
    ("waiting", "seconds", "expected"),
    [(8, 61, Finding), (7, 61, Healthy), (8, 59, NotMeasured)],
    ids=("the queue of all", "a short queue", "less than a minute"),
)
def test_a_rank_is_compared_with_the_others(
    waiting: int, seconds: float, expected: type[RuleVerdict]
) -> None:
    others = [rank(n, seconds, num_waiting=1) for n in (2, 3)]
    assert isinstance(of_rank_1(rank(1, seconds, num_waiting=waiting), *others), expected)


@pytest.mark.parametrize(
    ("own", "other", "fires"),
    [((8, 8), (2, 8), True), ((7, 8), (0, 8), False), ((8, 8), (3, 8), False),
     ((0, 8), (0, 2), True), ((0, 8), (0, 3), False), ((0, 4), (0, 1), False)],
    ids=("queue at", "too short a queue", "both queue", "running at", "both run", "few run"),
)  # fmt: skip
def test_a_rank_is_compared_with_the_only_other(
    own: tuple[int, int], other: tuple[int, int], fires: bool
) -> None:
    both = (
        rank(engine, num_waiting=waiting, num_running=running)
        for engine, (waiting, running) in enumerate((own, other), 1)
    )
    assert isinstance(of_rank_1(*both), Finding if fires else Healthy)


def test_the_engine_itself_is_not_in_the_median_of_the_others() -> None:
    others = [rank(2, num_waiting=1), rank(3, num_waiting=3)]
    said = of_rank_1(rank(1, num_waiting=8), *others)
    assert isinstance(said, Finding)
    assert "the median of 2 others is 2.0" in said.sentence
    assert said.evidence[0].baseline == 2


def idle(engine: int, seconds: int = 61) -> LogBuilder:
    log = LogBuilder(engine).described(model="m")
    for _ in range(seconds + 1):
        log.heartbeat(step=0).advance(SECOND)
    return log


def test_a_queue_beside_a_rank_without_work_is_found() -> None:
    assert isinstance(of_rank_1(rank(1, num_waiting=9), idle(2)), Finding)


def test_a_standby_is_no_imbalance() -> None:
    assert isinstance(of_rank_1(rank(1, num_waiting=0, num_running=20), idle(2)), Healthy)


def test_an_engine_is_not_compared_with_what_it_was_before_a_restart() -> None:
    said = of_rank_1(rank(1, num_waiting=20), rank(2, after=62, num_waiting=1))
    assert isinstance(said, NotMeasured)
    assert "beside another engine for 0" in said.why


def test_only_the_time_beside_the_other_is_compared() -> None:
    """A second rank has come because of the queue, and since then they share it."""
    alone = rank(1, 120, num_waiting=40)
    lasting(alone, 65, num_waiting=4)
    assert isinstance(of_rank_1(alone, rank(2, 64, after=121, num_waiting=4)), Healthy)


def test_engines_of_another_model_are_not_compared() -> None:
    other = lasting(LogBuilder(2).described(model="another"), 61, num_waiting=0)
    said = of_rank_1(rank(1, num_waiting=20), other)
    assert isinstance(said, Healthy)
    assert said.number == "one engine of this model"


def test_one_engine_is_balanced() -> None:
    assert isinstance(of_rank_1(rank(1, num_waiting=8)), Healthy)
