"""From settings to a drafter: what it takes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import transformers as t

from engine.config import ConfigError
from engine.llm import LLM
from engine.loading import LoadedEngine, load_engine
from engine.runner.drafters import load_drafter_parts
from engine.runner.kv_tensors import choose_num_blocks
from engine.runner.model import LoadedModel, load_model
from engine.runner.model_drafter import draft_block_bytes, tables_for
from engine.runner.model_error import ModelError
from engine.sampling import SamplingParams
from engine.settings import EngineSettings
from engine.speculative_settings import SpeculativeSettings
from telemetry.recorder import ListRecorder
from tests.engine.runner.builders import SIZES, save_model

Save = Callable[..., LoadedModel]


@pytest.fixture
def llama(tmp_path: Path) -> Save:
    """Makes a very small Llama, other than the usual one in what is said."""

    def make(**sizes: object) -> LoadedModel:
        model = t.LlamaForCausalLM(t.LlamaConfig(**{**SIZES, **sizes}))
        return load_model(save_model(model, tmp_path / "other"), dtype="float32", device="cpu")

    return make


def drafting_with(model: Path) -> SpeculativeSettings:
    return SpeculativeSettings(method="draft_model", num_speculative_tokens=3, model=model)


def settings(checkpoint: Path, **more: object) -> EngineSettings:
    return EngineSettings(
        model=checkpoint, num_gpu_blocks_override=40, max_num_seqs=4, max_num_batched_tokens=64,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def loaded(checkpoint: Path, **more: object) -> LoadedEngine:
    return load_engine(settings(checkpoint, **more), phase_hook=lambda phase: None)


def test_a_block_counts_what_the_draft_model_keeps_of_it(small_checkpoint: Path) -> None:
    alone = loaded(small_checkpoint).memory
    both = loaded(small_checkpoint, speculative_config=drafting_with(small_checkpoint)).memory
    assert None not in (alone.kv_block_bytes, alone.weights_bytes, alone.kv_bytes)
    assert both.kv_block_bytes == 2 * alone.kv_block_bytes  # type: ignore[operator]
    assert both.kv_bytes == 2 * alone.kv_bytes  # type: ignore[operator]
    assert both.weights_bytes == 2 * alone.weights_bytes  # type: ignore[operator]


def test_the_pool_is_smaller_by_what_the_draft_model_keeps(small_model: LoadedModel) -> None:
    def num_blocks(of_draft: int) -> int:
        return choose_num_blocks(
            small_model.kv_shape,
            block_size=16,
            budget_bytes=1 << 20,
            draft_block_bytes=of_draft,
        )

    assert num_blocks(draft_block_bytes(small_model.kv_shape, 16)) == num_blocks(0) // 2


def test_a_whole_engine_runs_to_the_models_length(small_checkpoint: Path) -> None:
    """Where slots end, drafts do: all the way up every draft is right."""
    recorder = ListRecorder()
    prompt, sampling = [5, 6, 7, 8], SamplingParams(max_tokens=46, ignore_eos=True)
    (plain,) = LLM(settings(small_checkpoint, max_model_len=50)).generate([prompt], sampling)
    drafting = settings(
        small_checkpoint, max_model_len=50, speculative_config=drafting_with(small_checkpoint)
    )
    (drafted,) = LLM(drafting, recorder=recorder).generate([prompt], sampling)
    assert drafted == plain
    assert len(drafted.token_ids) == 46
    placed = [step.num_placed or 0 for step in recorder.steps]
    assert placed == [step.num_accepted or 0 for step in recorder.steps]
    assert sum(placed) > 30


def test_n_grams_take_nothing(small_checkpoint: Path) -> None:
    ngram = SpeculativeSettings(method="ngram", num_speculative_tokens=3)
    with_drafts = loaded(small_checkpoint, speculative_config=ngram)
    assert with_drafts.memory == loaded(small_checkpoint).memory


def test_another_vocabulary_is_refused(
    small_model: LoadedModel, llama: Save, tmp_path: Path
) -> None:
    llama(vocab_size=96)
    with pytest.raises(ModelError, match=r"vocabulary of 96 tokens but .* one of 128"):
        load_drafter_parts(
            drafting_with(tmp_path / "other"), small_model, dtype="float32", block_size=8
        )


def test_too_few_positions_are_refused(small_checkpoint: Path, llama: Save, tmp_path: Path) -> None:
    llama(vocab_size=128, max_position_embeddings=64)
    drafting = drafting_with(tmp_path / "other")
    with pytest.raises(ConfigError, match="max_model_len is 512 but the draft model other has 64"):
        loaded(small_checkpoint, speculative_config=drafting)


def test_a_draft_model_cannot_see_more_than_the_targets_blocks_keep(
    small_model: LoadedModel, tmp_path: Path
) -> None:
    config = t.MistralConfig(**SIZES, sliding_window=10)
    target = load_model(
        save_model(t.MistralForCausalLM(config), tmp_path), dtype="float32", device="cpu"
    )
    with pytest.raises(ConfigError, match="see everything, but all of the target's KV blocks"):
        tables_for(small_model, target.kv_groups(8))
    assert tables_for(target, small_model.kv_groups(8)) == [0]
