from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from engine.llm import LLM
from engine.offline.flags import read_settings
from engine.sampling import SamplingParams
from engine.settings import EngineSettings
from telemetry.recorder import ListRecorder
from telemetry.records import RequestFinished
from telemetry.vocabulary import EventKind, FinishReason
from tests.engine.runner.builders import SIZES, plain_choices, save_model


def scripted(**settings: object) -> LLM:
    """An engine whose n-th output is n."""
    return LLM(EngineSettings(scripted_step_seconds=0, **settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tiny() -> Iterator[LLM]:
    """The tiny Llama."""
    with LLM(num_gpu_blocks_override=64, max_model_len=512) as llm:
        yield llm


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


def test_texts_are_tokenized_and_answered_with_text(tiny: LLM) -> None:
    assert tiny.tokenizer is not None
    token_ids = tiny.tokenizer.encode_as_it_is("Once")
    by_text, by_ids = tiny.generate(["Once", token_ids], SamplingParams(max_tokens=12))
    assert (by_text.prompt, by_ids.prompt) == ("Once", None)
    assert list(by_text.prompt_token_ids) == tiny.tokenizer.encode("Once") != token_ids
    assert by_ids.text == tiny.tokenizer.decode(by_ids.token_ids)


def test_one_prompt_may_stand_alone(tiny: LLM) -> None:
    (text,) = tiny.generate("Once")
    (tokens,) = tiny.generate(text.prompt_token_ids)
    assert tokens.outputs == text.outputs


def test_a_stop_string_ends_the_text_before_it_and_the_request_with_it(tiny: LLM) -> None:
    (whole,) = tiny.generate("Once", SamplingParams(max_tokens=40, ignore_eos=True))
    assert whole.text is not None
    stop = whole.text[10:12]
    (cut,) = tiny.generate("Once", SamplingParams(max_tokens=40, ignore_eos=True, stop=(stop,)))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason is FinishReason.stop
    assert len(cut.token_ids) < len(whole.token_ids)
    assert not tiny.core.scheduler.running


def test_choices_of_a_prompt_differ_by_their_seeds(tiny: LLM) -> None:
    sampling = SamplingParams(max_tokens=8, temperature=1.0, seed=5)
    (three,) = tiny.generate("Once", sampling, n=3)
    assert len({choice.text for choice in three.outputs}) == 3
    (second,) = tiny.generate("Once", replace(sampling, seed=6))
    assert three.outputs[1] == second.outputs[0]
    assert three.metrics.num_output_tokens == 24


def test_logprobs_come_with_each_token(tiny: LLM) -> None:
    (result,) = tiny.generate("Once", SamplingParams(max_tokens=5, logprobs=2))
    logprobs = result.outputs[0].logprobs
    assert logprobs is not None
    assert [each.token_id for each in logprobs] == list(result.token_ids)
    assert all(each.top[0] == (each.token_id, each.logprob) for each in logprobs)  # greedy
    assert tiny.generate("Once")[0].outputs[0].logprobs is None


def test_a_conversation_is_spelled_by_the_models_template(tiny: LLM) -> None:
    messages = [{"role": "user", "content": "Who are you?"}]
    (alone,) = tiny.chat(messages)
    assert alone.prompt == "<|bos|>user: Who are you?\nassistant: "
    both = tiny.chat([messages, messages])
    assert [result.outputs for result in both] == [alone.outputs] * 2


def test_what_a_batch_took_is_measured() -> None:
    llm = scripted(num_gpu_blocks_override=9, block_size=4, max_model_len=32)
    results = llm.generate([[1, 2]] * 2, SamplingParams(max_tokens=20))
    assert sum(result.metrics.num_preemptions for result in results) > 0
    for metrics in (result.metrics for result in results):
        assert (metrics.num_prompt_tokens, metrics.num_output_tokens) == (2, 20)
        assert metrics.time_to_first_token_seconds is not None
        assert 0 < metrics.time_to_first_token_seconds <= metrics.e2e_seconds


def test_a_progress_bar_counts_what_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    llm = scripted()
    llm.generate([[1]] * 3, SamplingParams(max_tokens=4), n=2, use_tqdm=True)
    bar = capsys.readouterr().err
    assert "6/6" in bar
    assert "output tokens/s" in bar
    llm.generate([[1]], SamplingParams(max_tokens=4))  # nobody looks: no terminal
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ([[]], "a prompt has no tokens"),
        ([[1], [256]], "outside 0 to 255"),
        ([[-1]], "outside 0 to 255"),
        ("text", "no tokenizer.json"),
    ],
)
def test_a_prompt_that_is_none_is_refused(prompts: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        scripted().generate(prompts)


def test_flags_are_those_of_serve() -> None:
    llm = LLM(scripted_step_seconds=0, max_num_seqs=3, block_size=8)
    assert (llm.core.config.scheduler.max_num_seqs, llm.core.config.cache.block_size) == (3, 8)
    with pytest.raises(TypeError, match="no flag 'max_seqs'"):
        LLM(max_seqs=3)


def test_flags_in_json_may_be_mappings(tmp_path: Path) -> None:
    settings = read_settings(
        tmp_path,
        {
            "speculative_config": {"method": "ngram", "num_speculative_tokens": 2},
            "kv_transfer_config": {"kv_connector": "HostMemoryConnector", "kv_role": "kv_both"},
            "lora_modules": {"sql": str(tmp_path)},
            "enable_lora": True,
        },
    )
    assert settings.model == tmp_path
    assert settings.speculative_config is not None
    assert settings.kv_transfer_config is not None
    assert [module.name for module in settings.lora_modules] == ["sql"]


@pytest.mark.parametrize("place", ["step", "_execute"])
def test_an_interrupted_batch_leaves_nothing_behind(place: str) -> None:
    recorder = ListRecorder()
    llm = LLM(EngineSettings(scripted_step_seconds=0), recorder=recorder)
    original, num_calls = getattr(llm.core, place), 0

    def interrupted(*args: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            raise KeyboardInterrupt
        return original(*args)

    setattr(llm.core, place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[1], [2]], SamplingParams(max_tokens=50))
    ends = [event.reason for event in recorder.events if isinstance(event, RequestFinished)]
    assert ends == [FinishReason.abort_api] * 2
    assert len(llm.generate([3], SamplingParams(max_tokens=4))[0].token_ids) == 4
    llm.core.scheduler.check_integrity()


def test_the_record_tells_of_the_engine_from_its_start_to_its_end() -> None:
    recorder = ListRecorder()
    with LLM(EngineSettings(scripted_step_seconds=0), recorder=recorder) as llm:
        llm.generate([1])
    kinds = [event.kind for event in recorder.events]
    assert kinds[:2] == [EventKind.engine_starting, EventKind.engine_started]
    assert kinds[-2:] == [EventKind.finished, EventKind.engine_stopped]


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
