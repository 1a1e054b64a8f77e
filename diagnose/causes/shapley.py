"""What each of several players accounts for in what they reach together: Shapley values.

The mean, over all orders in which they could come, of what a player adds to those before it. The
values sum to what all reach less what none does. With many players a few fixed orders stand for
all: each begins once with every player, forwards and backwards, so that the sum stays exact and the
result the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

MAX_EXACT = 4
"""Up to so many players all orders are taken: 16 coalitions for 24 orders."""


def orders_of(players: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the orders that are averaged over."""
    if len(players) <= MAX_EXACT:
        return list(permutations(players))
    turned = [(*players[i:], *players[:i]) for i in range(len(players))]
    return turned + [order[::-1] for order in turned]


def coalitions_of(players: Sequence[int]) -> set[frozenset[int]]:
    """Returns every coalition whose value is asked for."""
    return {
        frozenset(order[:size]) for order in orders_of(players) for size in range(len(players) + 1)
    }


def shapley(players: Sequence[int], value: Callable[[frozenset[int]], float]) -> dict[int, float]:
    """Returns each player's part of `value(all) - value(none)`, to which they sum.

    Args:
        players: in any order; the result does not depend on it with up to `MAX_EXACT`.
        value: what a coalition reaches; asked once for each of `coalitions_of(players)`.
    """
    known = {members: value(members) for members in sorted(coalitions_of(players), key=len)}
    orders = orders_of(players)
    parts = dict.fromkeys(players, 0.0)
    for order in orders:
        for place, player in enumerate(order):
            before, after = frozenset(order[:place]), frozenset(order[: place + 1])
            parts[player] += (known[after] - known[before]) / len(orders)
    return parts
