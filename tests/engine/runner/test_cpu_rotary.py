from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.runner.cpu_rotary import MIN_POSITIONS, tabulate_rotations


def rotary(**rope: Any) -> Any:
    parameters = {"rope_type": "default", "rope_theta": 10_000.0, **rope}
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, rope_parameters=parameters)
    return LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_what_is_looked_up_is_what_would_be_computed(dtype: torch.dtype) -> None:
    plain, tabulated = rotary(), rotary()
    assert tabulate_rotations(tabulated) == 1
    x = torch.empty(1, dtype=dtype)
    for positions in ([0, 5, 3], [7], [MIN_POSITIONS, 2], [5 * MIN_POSITIONS]):
        position_ids = torch.tensor([positions])
        pairs = zip(tabulated(x, position_ids), plain(x, position_ids), strict=True)
        assert all(torch.equal(given, wanted) for given, wanted in pairs)


def test_rotations_that_stretch_with_the_sequence_are_computed() -> None:
    assert tabulate_rotations(rotary(rope_type="dynamic", factor=2.0)) == 0
