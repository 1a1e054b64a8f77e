from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.runner.kv_tensors import KVCacheSizeError, KVShape, PagedKVCache, choose_num_blocks
from engine.runner.layer_groups import LayerGroup

SHAPE = KVShape(
    groups=(LayerGroup((0, 1, 2, 3)),),
    num_kv_heads=2,
    key_dim=8,
    value_dim=8,
    dtype=torch.bfloat16,
)
CPU = torch.device("cpu")


def test_the_bytes_of_a_block_are_those_of_its_tensors() -> None:
    cache = PagedKVCache.allocate(SHAPE, num_blocks=3, block_size=16, device=CPU)
    held = sum(layer.numel() * layer.element_size() for layer in cache.layers)
    assert SHAPE.block_bytes(16) * 3 == held


def test_an_override_is_taken_as_it_is() -> None:
    assert choose_num_blocks(SHAPE, block_size=16, budget_bytes=0, override=160) == 160


def test_as_many_blocks_are_taken_as_fit() -> None:
    block_bytes = SHAPE.block_bytes(16)
    budget = 7 * block_bytes
    assert choose_num_blocks(SHAPE, block_size=16, budget_bytes=budget) == 7
    assert choose_num_blocks(SHAPE, block_size=16, budget_bytes=budget - 1) == 6


def test_what_a_draft_model_keeps_of_a_block_counts() -> None:
    block_bytes = SHAPE.block_bytes(16)
    num_blocks = choose_num_blocks(
        SHAPE, block_size=16, budget_bytes=12 * block_bytes, draft_block_bytes=block_bytes
    )
    assert num_blocks == 6


@pytest.mark.parametrize("budget", [-5, 0, SHAPE.block_bytes(16)])
def test_a_budget_without_room_for_two_blocks_is_refused(budget: int) -> None:
    with pytest.raises(KVCacheSizeError, match="lower --block-size"):
        choose_num_blocks(SHAPE, block_size=16, budget_bytes=budget)


def test_what_is_written_is_gathered() -> None:
    cache = PagedKVCache.allocate(SHAPE, num_blocks=4, block_size=2, device=CPU)
    key = torch.ones(2, 2, 8, dtype=torch.bfloat16)
    cache.write(1, torch.tensor([3, 4]), key, 2 * key)
    gathered = cache.gather(1, torch.tensor([1, 2]))
    assert gathered[:, :, 0, 0].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert gathered[:, :, 0, 8].tolist() == [[0.0, 2.0], [2.0, 0.0]]


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_not_handed_on(broken: float) -> None:
    cache = PagedKVCache.allocate(SHAPE, num_blocks=2, block_size=2, device=CPU)
    states = torch.full((1, 2, 8), broken, dtype=torch.bfloat16)
    cache.write(0, torch.tensor([2]), states, states)
    assert not cache.gather(0, torch.tensor([1])).any()


def test_layers_at_one_place_of_their_groups_share_memory() -> None:
    shape = replace(SHAPE, groups=(LayerGroup((1, 3)), LayerGroup((0, 2), 12)))
    cache = PagedKVCache.allocate(shape, num_blocks=3, block_size=16, device=CPU)
    tensors = [layer.data_ptr() for layer in cache.layers]
    assert tensors[0] == tensors[1] != tensors[2] == tensors[3]
    assert cache.group_of == [1, 0, 1, 0]
    assert shape.block_bytes(16) == SHAPE.block_bytes(16) // 2
