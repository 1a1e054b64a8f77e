from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from engine.runner import gathered_attention
from tests.engine.runner.attention_case import HEAD_DIM, SHAPES, Case


@pytest.mark.parametrize("num_heads", [4, 12])
@pytest.mark.parametrize("shape", SHAPES)
def test_paged_attention_equals_plain_attention(shape: str, num_heads: int) -> None:
    case = Case(SHAPES[shape], num_heads=num_heads, num_kv_heads=4, seed=len(shape))
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


@pytest.fixture
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lets no more than 100 tokens of the cases be gathered at once; longer ones go in parts."""
    token_bytes = 4 * 2 * 2 * HEAD_DIM
    monkeypatch.setitem(gathered_attention.MAX_GATHERED_BYTES, "cpu", 100 * token_bytes)
    return 100


@pytest.mark.parametrize("num_heads", [2, 6])
@pytest.mark.parametrize("sliding_window", [None, 150])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_longer_than_the_buffer_is_attended_to_in_parts(
    shape: str, num_heads: int, sliding_window: int | None, small_buffer: int
) -> None:
    case = Case(
        SHAPES[shape], num_heads=num_heads, num_kv_heads=2, seed=9, sliding_window=sliding_window
    )
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


def test_the_buffer_stays_small_though_a_sequence_is_long(small_buffer: int) -> None:
    case = Case([(5000, 1)], num_heads=4, num_kv_heads=2, seed=2)
    case.run()
    assert case.cache._gathered.nbytes <= small_buffer * case.cache.token_bytes


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sliding_window_hides_older_keys(shape: str) -> None:
    case = Case(SHAPES[shape], num_heads=6, num_kv_heads=2, seed=3, sliding_window=12)
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("window", [1, 7, 8, 9, 300])
def test_blocks_that_a_window_has_passed_are_not_looked_at(window: int) -> None:
    case = Case(SHAPES["all at once"], num_heads=4, num_kv_heads=2, seed=4, sliding_window=window)
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


def test_values_may_be_narrower_than_keys() -> None:
    case = Case(SHAPES["all at once"], num_heads=6, num_kv_heads=3, seed=4, value_dim=8)
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "wishes", [{"softcap": 1.5}, {"s_aux": torch.tensor([2.0, -1.0, 0.5, 1.0])}]
)
def test_soft_caps_and_sinks_are_heeded(wishes: dict[str, Any]) -> None:
    case = Case(SHAPES["all at once"], num_heads=4, num_kv_heads=2, seed=6)
    torch.testing.assert_close(case.run(**wishes), case.expected(**wishes), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_random_batches_attend_as_they_would_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequences = [
        (int(rng.integers(0, 150)), 1 if rng.random() < 0.5 else int(rng.integers(1, 60)))
        for _ in range(int(rng.integers(1, 40)))
    ]
    case = Case(sequences, num_heads=8, num_kv_heads=2, seed=seed)
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


def test_other_layers_are_not_written() -> None:
    case = Case([(4, 3)], num_heads=2, num_kv_heads=2, seed=1)
    before = case.cache.layers[0].clone()
    case.run()
    assert torch.equal(case.cache.layers[0], before)
