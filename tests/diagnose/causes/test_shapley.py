"""Parts of what several reach together."""

from __future__ import annotations

import pytest

from diagnose.causes.shapley import MAX_EXACT, coalitions_of, shapley


def test_who_adds_nothing_has_nothing() -> None:
    parts = shapley([0, 1], lambda present: 10.0 if 0 in present else 0.0)
    assert parts == {0: 10.0, 1: 0.0}


def test_what_takes_two_is_halved() -> None:
    parts = shapley([0, 1], lambda present: 10.0 if len(present) == 2 else 0.0)
    assert parts == {0: 5.0, 1: 5.0}


def test_a_sum_is_taken_apart_into_its_summands() -> None:
    worth = {0: 1.0, 1: 2.0, 2: 4.0}
    parts = shapley([0, 1, 2], lambda present: sum(worth[each] for each in present))
    assert parts == pytest.approx(worth)


@pytest.mark.parametrize("num_players", [1, 3, MAX_EXACT, MAX_EXACT + 2])
def test_the_parts_sum_to_all_less_none(num_players: int) -> None:
    def value(present: frozenset[int]) -> float:
        return 3.0 + sum(present) ** 2 + 7.0 * (len(present) > 1)

    players = list(range(num_players))
    whole = value(frozenset(players)) - value(frozenset())
    assert sum(shapley(players, value).values()) == pytest.approx(whole)


def test_many_players_need_far_fewer_than_all_coalitions() -> None:
    assert len(coalitions_of(list(range(4)))) == 16
    assert len(coalitions_of(list(range(8)))) < 80
