"""What FlashInfer and FlashAttention are handed is right: with stand-ins that go by their contract.

Whether the kernels keep it is for `make gpu-check` to say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.runner.attention_backend import AttentionBackend, MakeBackend
from engine.runner.attention_needs import LayerNeeds
from engine.runner.graphs import RerunCapturer
from engine.runner.kernels import flashinfer_kernel
from engine.runner.kernels.flash_kernel import FlashBackend
from engine.runner.kernels.flashinfer_kernel import FlashInferBackend
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler
from engine.scheduler.output import GraphMode
from telemetry.recorder import ListRecorder
from tests.engine.runner import kernel_stand_ins
from tests.engine.runner.attention_case import HEAD_DIM, SHAPES, Case
from tests.engine.runner.builders import engine_config, request, run_all

TOLERANCE = {"atol": 2e-5, "rtol": 1e-4}

Make = Callable[[LayerNeeds], MakeBackend]


def flashinfer(layer: LayerNeeds) -> MakeBackend:
    return lambda cache: FlashInferBackend(cache, layer)


def second(_: LayerNeeds) -> MakeBackend:
    return lambda cache: FlashBackend(cache, third_generation=False)


KERNELS: dict[str, Make] = {"flashinfer": flashinfer, "flash 2": second}


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", kernel_stand_ins.flashinfer)
    monkeypatch.setattr(flashinfer_kernel, "WORKSPACE_BYTES", 16)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel_stand_ins.varlen_attn)


def needs(num_heads: int, num_kv_heads: int, softcap: float | None = None) -> LayerNeeds:
    return LayerNeeds(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        key_dim=HEAD_DIM,
        value_dim=HEAD_DIM,
        scaling=0.3,
        softcap=softcap,
    )


def case(shape: str, kernel: str, *, window: int | None = None, **layer: Any) -> Case:
    make: Callable[[PagedKVCache], AttentionBackend] = KERNELS[kernel](needs(6, 2, **layer))
    return Case(
        SHAPES[shape],
        num_heads=6,
        num_kv_heads=2,
        seed=4,
        sliding_window=window,
        backend=make,
        given_back=1000.0,
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_kernel_is_handed_what_its_step_needs(shape: str, kernel: str) -> None:
    ran = case(shape, kernel)
    torch.testing.assert_close(ran.run(), ran.expected(), **TOLERANCE)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("window", [1, 8, 9, 150])
def test_windows_are_handed_over(window: int, kernel: str) -> None:
    ran = case("all at once", kernel, window=window)
    torch.testing.assert_close(ran.run(), ran.expected(), **TOLERANCE)


@pytest.mark.parametrize("kernel", KERNELS)
def test_sinks_are_made_good(kernel: str) -> None:
    ran = case("all at once", kernel)
    sinks = torch.tensor([2.0, -1.0, 0.5, 1.0, 3.0, -4.0])
    torch.testing.assert_close(ran.run(s_aux=sinks), ran.expected(s_aux=sinks), **TOLERANCE)


def test_a_bound_is_planned_with() -> None:
    ran = case("all at once", "flashinfer", softcap=1.5)
    torch.testing.assert_close(ran.run(softcap=1.5), ran.expected(softcap=1.5), **TOLERANCE)


@pytest.mark.parametrize("kernel", KERNELS)
def test_padded_decodes_give_the_same_tokens(kernel: str, small_model: LoadedModel) -> None:
    if small_model.device.type != "cpu":
        pytest.skip("stand-ins are for the CPU")
    config = engine_config(num_blocks=40, budget=48, max_num_seqs=6, max_model_len=64)
    config = replace(config, cache=replace(config.cache, groups=small_model.kv_groups(8)))

    def run(attention: MakeBackend | None) -> tuple[dict[str, list[int]], int]:
        runner = ModelRunner(small_model, config)
        if attention is not None:
            runner = ModelRunner(small_model, config, attention=attention)
            runner.capture_graphs(RerunCapturer())
        recorder = ListRecorder()
        requests = [
            request(n, list(range(5 + n, 12 + 3 * n)), SamplingParams(max_tokens=12))
            for n in range(7)
        ]
        tokens = run_all(Scheduler(config, recorder=recorder), runner, requests)
        return tokens, sum(row.graph_mode == GraphMode.FULL for row in recorder.steps)

    expected, _ = run(None)
    tokens, num_graphs = run(KERNELS[kernel](small_model.layers[0]))
    assert tokens == expected
    assert num_graphs > 5
