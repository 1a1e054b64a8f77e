from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from engine.runner.cpu_norm import fuse_norms


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [LlamaRMSNorm, Qwen3RMSNorm, Gemma3RMSNorm])
@torch.inference_mode()
def test_a_fused_norm_gives_what_the_models_own_gives(
    kind: type[nn.Module], dtype: torch.dtype
) -> None:
    norm: Any = kind(64).to(dtype)
    norm.weight.normal_()
    tokens = (5 * torch.randn(1, 7, 64)).to(dtype)
    wanted = norm(tokens)
    assert fuse_norms(norm) == 1
    rounding = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(norm(tokens), wanted, rtol=rounding, atol=1e-6)


def test_a_norm_that_computes_something_else_is_left_alone() -> None:
    class SquaredRMSNorm(LlamaRMSNorm):  # type: ignore[misc]
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            normed: torch.Tensor = super().forward(hidden_states)
            return normed * normed

    assert fuse_norms(SquaredRMSNorm(64)) == 0


def test_a_norm_that_takes_more_than_its_input_is_left_alone() -> None:
    class GatedRMSNorm(LlamaRMSNorm):  # type: ignore[misc]
        def forward(self, hidden_states: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
            normed: torch.Tensor = super().forward(hidden_states)
            return normed * gate

    assert fuse_norms(GatedRMSNorm(64)) == 0
