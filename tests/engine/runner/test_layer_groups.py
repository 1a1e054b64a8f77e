from __future__ import annotations

import pytest

from engine.config import KVGroupConfig
from engine.runner.layer_groups import LayerGroup, group_layers


def test_layers_that_see_everything_are_one_group() -> None:
    assert group_layers([None] * 3) == (LayerGroup((0, 1, 2)),)


def test_layers_with_one_window_are_one_group() -> None:
    assert group_layers([64] * 2) == (LayerGroup((0, 1), 64),)


def test_full_layers_come_first_and_as_many_windowed_ones_are_a_group() -> None:
    assert group_layers([64, 64, None, 64, 64, None]) == (
        LayerGroup((2, 5)),
        LayerGroup((0, 3), 64),
        LayerGroup((1, 4), 64),
    )


def test_numbers_that_differ_little_make_two_groups() -> None:
    assert [len(group.layers) for group in group_layers([None] * 4 + [64] * 5)] == [4, 5]


def test_a_rest_of_layers_is_spread() -> None:
    sizes = [len(group.layers) for group in group_layers([None] * 4 + [64] * 22)]
    assert sizes == [4, 4, 4, 4, 4, 3, 3]


@pytest.mark.parametrize("pattern", [[None, 8, 16, 8], [8, None] * 9, [32] * 5 + [None]])
def test_every_layer_is_in_one_group_of_its_window(pattern: list[int | None]) -> None:
    groups = group_layers(pattern)
    seen = {layer: group.sliding_window for group in groups for layer in group.layers}
    assert sum(len(group.layers) for group in groups) == len(pattern)
    assert [seen[layer] for layer in range(len(pattern))] == pattern


def test_the_scheduler_is_told_the_kind() -> None:
    assert LayerGroup((0,)).config(16) == KVGroupConfig("full", 16)
    assert LayerGroup((0,), 64).config(16) == KVGroupConfig("sliding_window", 16, 64)
