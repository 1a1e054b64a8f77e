from __future__ import annotations

import copy
import weakref

import pytest
import torch
from torch import nn

from engine.runner.cpu_linear import PackedLinear, pack_linear_layers


class Attention(nn.Module):
    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.q_proj = nn.Linear(32, 48, bias=bias)
        self.k_proj = nn.Linear(32, 16, bias=bias)
        self.v_proj = nn.Linear(32, 16, bias=bias)
        self.o_proj = nn.Linear(48, 32, bias=bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        query, key, value = self.q_proj(tokens), self.k_proj(tokens), self.v_proj(tokens)
        output: torch.Tensor = self.o_proj(query + torch.cat((key, value, key), dim=-1))
        return output


def pair(dtype: torch.dtype, *, bias: bool = False) -> tuple[Attention, Attention]:
    """Returns layers as they are, and the same packed."""
    torch.manual_seed(0)
    plain = Attention(bias=bias).to(dtype).eval()
    packed = copy.deepcopy(plain)
    pack_linear_layers(packed, dtype)
    return plain, packed


@pytest.mark.parametrize("num_tokens", [1, 2, 40])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_packed_layers_give_what_plain_ones_give(
    dtype: torch.dtype, bias: bool, num_tokens: int
) -> None:
    plain, packed = pair(dtype, bias=bias)
    tokens = torch.randn(1, num_tokens, 32).to(dtype)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(packed(tokens), plain(tokens), rtol=tolerance, atol=tolerance)


@torch.inference_mode()
def test_layers_of_one_input_may_be_asked_in_any_order() -> None:
    plain, packed = pair(torch.float32)
    first, second = torch.randn(2, 1, 3, 32).unbind()
    asked = [("v_proj", first), ("q_proj", second), ("v_proj", second), ("k_proj", first)]
    for name, tokens in [*asked, *asked]:
        given = getattr(packed, name)(tokens)
        torch.testing.assert_close(given, getattr(plain, name)(tokens), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_an_input_is_not_kept_once_all_have_asked() -> None:
    _, packed = pair(torch.float32)
    tokens = torch.randn(1, 3, 32)
    kept = weakref.ref(tokens)
    packed(tokens)
    del tokens
    assert kept() is None


def test_weights_stay_for_those_who_look_at_them() -> None:
    plain, packed = pair(torch.bfloat16)
    kept = packed.state_dict()
    assert all(torch.equal(kept[name], weight) for name, weight in plain.state_dict().items())


@torch.inference_mode()
def test_weights_that_change_before_the_first_pass_are_what_is_packed() -> None:
    plain, packed = pair(torch.float32)
    for layers in (plain, packed):
        for weight in layers.parameters():
            weight.mul_(2)
    tokens = torch.randn(1, 4, 32)
    torch.testing.assert_close(packed(tokens), plain(tokens), rtol=1e-5, atol=1e-5)


def test_layers_of_another_kind_are_left_alone() -> None:
    class Adapted(nn.Linear):
        pass

    layers = Attention(bias=False)
    layers.k_proj = Adapted(32, 16, bias=False)
    pack_linear_layers(layers, torch.float32)
    assert type(layers.k_proj) is Adapted
    assert type(layers.q_proj) is PackedLinear
