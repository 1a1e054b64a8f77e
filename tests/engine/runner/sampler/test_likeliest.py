from __future__ import annotations

import pytest
import torch

from engine.runner.sampler.likeliest import likeliest


@pytest.mark.parametrize("vocab_size", [258, 4096, 50_257, 128_256, 151_936])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_of_the_largest_is_found(dtype: torch.dtype, vocab_size: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = torch.randn(5, vocab_size, generator=generator).to(dtype)
    logits[1, [7, vocab_size - 1]] = 100.0
    logits[2] = -1.0
    logits[3, :] = float("-inf")
    logits[3, 200:] = 0.0
    assert likeliest(logits).tolist() == logits.argmax(dim=-1).tolist()


def test_no_row_has_no_token() -> None:
    assert likeliest(torch.empty(0, 4096)).tolist() == []
