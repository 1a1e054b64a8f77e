"""What the kernels are handed, and FlexAttention itself, which a CPU computes score by score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.runner.attention_needs import LayerNeeds
from engine.runner.kernels import flash_kernel, flashinfer_kernel, flex_kernel
from engine.runner.kernels.paged_tables import paged_rows
from engine.runner.kv_tensors import PagedKVCache
from tests.engine.runner.attention_case import SHAPES, Case

pytestmark = pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile:UserWarning"
)

TOLERANCE = {"atol": 2e-5, "rtol": 1e-4}


def flex(cache: PagedKVCache) -> flex_kernel.FlexBackend:
    return flex_kernel.FlexBackend(cache, compiled=False)


@pytest.mark.parametrize("shape", SHAPES)
def test_flex_attention_over_pages_equals_plain_attention(shape: str) -> None:
    case = Case(SHAPES[shape], num_heads=6, num_kv_heads=2, seed=len(shape), backend=flex)
    torch.testing.assert_close(case.run(), case.expected(), **TOLERANCE)


@pytest.mark.parametrize("window", [1, 8, 9, 150])
def test_flex_attention_heeds_windows(window: int) -> None:
    case = Case(
        SHAPES["all at once"],
        num_heads=4,
        num_kv_heads=2,
        seed=4,
        sliding_window=window,
        backend=flex,
        given_back=1000.0,
    )
    torch.testing.assert_close(case.run(), case.expected(), **TOLERANCE)


@pytest.mark.parametrize(
    "wishes", [{"softcap": 1.5}, {"s_aux": torch.tensor([2.0, -1.0, 0.5, 1.0])}]
)
def test_flex_attention_heeds_soft_caps_and_sinks(wishes: dict[str, Any]) -> None:
    case = Case(SHAPES["all at once"], num_heads=4, num_kv_heads=2, seed=6, backend=flex)
    torch.testing.assert_close(case.run(**wishes), case.expected(**wishes), **TOLERANCE)


def test_values_may_be_narrower_than_keys() -> None:
    case = Case(
        SHAPES["all at once"], num_heads=6, num_kv_heads=3, seed=4, value_dim=8, backend=flex
    )
    torch.testing.assert_close(case.run(), case.expected(), **TOLERANCE)


def mask_of(case: Case) -> Any:
    """Returns the block mask of a case's only group."""
    case.run()
    seq_lens = case.seq_lens
    query_lens = case.query_lens
    (group,) = flex_kernel.group_sequences(
        query_lens, seq_lens, block_size=8, max_group_tokens=1 << 20, sliding_window=None
    )
    return flex_kernel._masked_group(group, case.tables, case.cache, None).mask


def test_only_the_blocks_of_a_sequence_are_read() -> None:
    """Compiled, it goes by the block mask; else all keys are looked at and the mask decides."""
    case = Case([(15, 1), (30, 1)], num_heads=2, num_kv_heads=2, seed=2, backend=flex)
    mask = mask_of(case)
    assert mask.kv_num_blocks.flatten().tolist() == [4, 2]
    listed = mask.kv_indices[:, 0, 0]
    assert listed[0, :4].tolist() == case.tables[0].tolist()
    assert listed[1, :2].tolist() == case.tables[1, :2].tolist()


def test_rows_of_blocks_leave_out_what_a_window_has_passed() -> None:
    tables = np.array([[5, 6, 7], [8, 0, 0]], np.int32)
    query_lens, seq_lens = np.array([1, 2]), np.array([10, 4])
    rows = paged_rows(query_lens, seq_lens, tables, block_size=4, sliding_window=None)
    assert rows.starts.tolist() == [0, 3, 4]
    assert rows.blocks.tolist() == [5, 6, 7, 8]
    assert rows.last_block_lens.tolist() == [2, 4]
    rows = paged_rows(query_lens, seq_lens, tables, block_size=4, sliding_window=3)
    assert rows.starts.tolist() == [0, 2, 3]  # the first query sees 7 to 9 of 0 to 9
    assert rows.blocks.tolist() == [6, 7, 8]
    assert rows.last_block_lens.tolist() == [2, 4]


def test_keys_and_values_are_views_with_the_same_strides() -> None:
    cache = Case([(20, 1)], num_heads=4, num_kv_heads=2, seed=1).cache
    key, value = cache.keys_and_values(1)
    assert key.stride() == value.stride()
    assert key.stride(-1) == 1
    assert {key.untyped_storage().data_ptr(), value.untyped_storage().data_ptr()} == {
        cache.layers[1].untyped_storage().data_ptr()
    }


def layer(**wishes: Any) -> LayerNeeds:
    return LayerNeeds(
        **{"num_heads": 8, "num_kv_heads": 2, "key_dim": 128, "value_dim": 128} | wishes
    )


def flash(*layers: LayerNeeds, dtype: torch.dtype = torch.bfloat16, **how: Any) -> str | None:
    return flash_kernel.complaint(
        layers, dtype=dtype, **{"block_size": 256, "any_page": False} | how
    )


def flashinfer(*layers: LayerNeeds, dtype: torch.dtype = torch.bfloat16) -> str | None:
    return flashinfer_kernel.complaint(layers, dtype=dtype)


def test_a_plain_model_gets_every_kernel() -> None:
    plain = layer(), layer(sliding_window=100), layer(has_sinks=True)
    assert flash(*plain) is None
    assert flash(*plain, block_size=16, any_page=True) is None
    assert flashinfer(*plain) is None
    assert flex_kernel.complaint(plain, block_size=16) is None


@pytest.mark.parametrize(
    ("complaint", "says"),
    [
        (lambda: flash(layer(), dtype=torch.float32), "the model is float32"),
        (lambda: flash(layer(), block_size=16), "--block-size 256"),
        (lambda: flash(layer(softcap=30.0)), "no bound for scores"),
        (lambda: flash(layer(key_dim=192)), "keys have 192 dimensions and values 128"),
        (lambda: flash(layer(key_dim=320, value_dim=320)), "up to 256"),
        (lambda: flashinfer(layer(), dtype=torch.float32), "the model is float32"),
        (lambda: flashinfer(layer(key_dim=192)), "keys have 192 dimensions and values 128"),
        (lambda: flashinfer(layer(), layer(softcap=3.0)), "differ in heads, scaling or bound"),
        (lambda: flex_kernel.complaint([layer()], block_size=8), "from 16 on"),
        (lambda: flex_kernel.complaint([layer()], block_size=48), "powers of 2"),
    ],
)
def test_what_a_kernel_cannot_do_it_says(complaint: Callable[[], str | None], says: str) -> None:
    assert says in (complaint() or "")
