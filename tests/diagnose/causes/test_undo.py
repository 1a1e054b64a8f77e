"""How a change is taken out of a load."""

from __future__ import annotations

import numpy as np

from diagnose.causes.undo import Undo, as_before, thinned, together


def test_each_length_becomes_the_one_of_its_rank_before() -> None:
    then = as_before(np.array([10, 30, 20]), np.array([300, 100, 200]))
    assert then.tolist() == [30, 10, 20]


def test_more_lengths_than_before_spread_over_all_of_them() -> None:
    then = as_before(np.array([10, 20]), np.arange(100, 200))
    assert (then == 10).sum() == (then == 20).sum() == 50


def test_arrivals_are_thinned_evenly() -> None:
    dropped = thinned(np.arange(100, 112), 4)
    assert sorted(set(range(100, 112)) - dropped) == [102, 105, 108, 111]


def test_nothing_is_dropped_where_all_are_kept() -> None:
    assert thinned(np.arange(5), 9) == frozenset()
    assert thinned(np.arange(0), 3) == frozenset()


def test_several_changes_are_one_in_any_order() -> None:
    one = Undo(dropped=frozenset({1}), num_prompt_tokens={2: 5}, settings={"max_num_seqs": 8})
    other = Undo(dropped=frozenset({3}), num_output_tokens={2: 7}, prefixes={4: (1, 32)})
    assert together([one, other]) == together([other, one])
    assert together([one, other]).dropped == {1, 3}
    assert together([one, other]).prefixes == {4: (1, 32)}
    assert together([]) == Undo()
