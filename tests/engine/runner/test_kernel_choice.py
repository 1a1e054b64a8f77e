from __future__ import annotations

import pytest
import torch

from engine.runner.attention_backend import AttentionBackend, GatherBackend
from engine.runner.batch_inputs import BatchInputs
from engine.runner.kernels import choice, flex_kernel, trial
from engine.runner.kernels.choice import AttentionBackendError, ModelNeeds, choose_backend
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention
from engine.runner.model import LoadedModel

CPU = torch.device("cpu")


def needs_of(model: LoadedModel) -> ModelNeeds:
    return ModelNeeds(layers=model.layers, shape=model.kv_shape, block_size=16, device=CPU)


def test_on_a_cpu_keys_are_gathered(small_model: LoadedModel) -> None:
    chosen = choose_backend(needs_of(small_model))
    assert (chosen.name, chosen.passed_over) == ("TORCH_SDPA", {})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("FLASHINFER", r"pip install 'stepscope\[cuda\]'"),
        ("FLASH_ATTN", "it runs on CUDA, the model is on cpu"),
        ("FLEX_ATTENTION", "it runs on CUDA, the model is on cpu"),
    ],
)
def test_a_kernel_that_is_asked_for_and_cannot_be_had_is_an_error(
    name: choice.AttentionBackendName, says: str, small_model: LoadedModel
) -> None:
    with pytest.raises(AttentionBackendError, match=f"--attention-backend {name} .*{says}"):
        choose_backend(needs_of(small_model), name)


def failing(make: choice.MakeBackend, model: LoadedModel) -> str | None:
    return trial.failing(make, model.layers, model.kv_shape, block_size=16, device=CPU)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
def test_a_kernel_that_attends_rightly_passes_its_trial(small_model: LoadedModel) -> None:
    assert failing(GatherBackend, small_model) is None
    assert failing(lambda c: flex_kernel.FlexBackend(c, compiled=False), small_model) is None


class Spoiled(GatherBackend):
    """Attends rightly, and then spoils the output in one place or another."""

    def __init__(self, cache: PagedKVCache, spoil: float) -> None:
        super().__init__(cache)
        self._spoil = spoil

    def step(self, inputs: BatchInputs) -> StepAttention:
        return _SpoiledStep(super().step(inputs), self._spoil)


class _SpoiledStep:
    def __init__(self, step: StepAttention, spoil: float) -> None:
        self._step, self._spoil = step, spoil
        self.cache, self.slot_mapping = step.cache, step.slot_mapping

    def attend(self, call: LayerCall, query: torch.Tensor) -> torch.Tensor:
        output = self._step.attend(call, query)
        output[-1, -1, -1] += self._spoil
        return output


@pytest.mark.parametrize("spoil", [0.01, float("nan")])
def test_one_wrong_number_fails_the_trial(spoil: float, small_model: LoadedModel) -> None:
    said = failing(lambda cache: Spoiled(cache, spoil), small_model)
    assert said is not None
    assert "differed by" in said


def test_a_kernel_that_fails_says_how(small_model: LoadedModel) -> None:
    def make(cache: PagedKVCache) -> AttentionBackend:
        raise RuntimeError("no kernel image is available for execution on the device")

    said = failing(make, small_model)
    assert said is not None
    assert "RuntimeError: no kernel image" in said
