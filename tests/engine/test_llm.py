from pathlib import Path

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from engine.llm import LLM
from engine.sampling import SamplingParams
from engine.settings import EngineSettings
from telemetry.recorder import ListRecorder
from telemetry.records import RequestFinished
from telemetry.vocabulary import FinishReason
from tests.engine.runner.builders import SIZES, plain_choices, save_model


def scripted(**settings: object) -> LLM:
    """An engine whose n-th output is n."""
    return LLM(EngineSettings(scripted_step_seconds=0, **settings))  # type: ignore[arg-type]


def test_completions_come_in_the_order_of_their_prompts() -> None:
    sampling = [SamplingParams(max_tokens=n) for n in (5, 2, 3)]
    completions = scripted().generate([[1], [2, 3], [4]], sampling)
    assert [c.token_ids for c in completions] == [(0, 1, 2, 3, 4), (0, 1), (0, 1, 2)]
    assert {c.finish_reason for c in completions} == {FinishReason.length}


def test_it_can_be_called_again() -> None:
    llm = scripted()
    first = llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4))
    assert llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4)) == first


def test_a_prompt_that_can_never_fit_starts_none() -> None:
    recorder = ListRecorder()
    llm = LLM(EngineSettings(scripted_step_seconds=0, num_gpu_blocks_override=4), recorder=recorder)
    with pytest.raises(ValueError, match="KV blocks"):
        llm.generate([[1], [1] * 100], SamplingParams(max_tokens=4))
    assert recorder.steps == []
    ends = [event.reason for event in recorder.events if isinstance(event, RequestFinished)]
    assert ends == [FinishReason.refused, FinishReason.abort_api]


def test_a_standstill_is_an_error_and_not_a_hang() -> None:
    llm = scripted(num_gpu_blocks_override=4, allow_oversize=True)
    with pytest.raises(RuntimeError, match="more KV blocks than there are"):
        llm.generate([[1] * 100], SamplingParams(max_tokens=4))


def test_as_many_sampling_parameters_as_prompts() -> None:
    with pytest.raises(ValueError, match="2 prompts came with 1"):
        scripted().generate([[1], [2]], [SamplingParams()])


def test_a_model_with_windows_brings_its_kv_groups(tmp_path: Path) -> None:
    layer_types = ["sliding_attention", "full_attention"]
    config = Gemma3TextConfig(**SIZES, sliding_window=10, layer_types=layer_types)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Gemma3ForCausalLM(config).eval()
    save_model(model, tmp_path)
    llm = LLM(EngineSettings(model=tmp_path, num_gpu_blocks_override=40, block_size=4))
    assert [group.sliding_window for group in llm.core.config.cache.kv_groups] == [None, 10]
    prompt = list(range(3, 33))
    (completion,) = llm.generate([prompt], SamplingParams(max_tokens=20, ignore_eos=True))
    assert list(completion.token_ids) == plain_choices(model, prompt, completion.token_ids)[0]
