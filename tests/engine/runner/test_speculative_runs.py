"""Drafts change how fast a text comes, and never the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from engine.runner.model import LoadedModel, load_model
from engine.sampling import SamplingParams
from tests.engine.runner.builders import SIZES, TEST_DEVICE, save_model
from tests.engine.runner.speculating import Who, perturbed, run

NUM_OUTPUTS = 32
SIX_LAYERS = {
    **SIZES,
    "num_hidden_layers": 6,
    "sliding_window": 10,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
}

Wish = Callable[[int], SamplingParams]


def wish(**fields: object) -> Wish:
    """Returns what gives each request this sampling, with a seed of its own."""
    how = {"max_tokens": NUM_OUTPUTS, "ignore_eos": True, **fields}
    return lambda n: SamplingParams(seed=n, **how)  # type: ignore[arg-type]


GREEDY = wish()
DRAWN = wish(temperature=0.8, top_p=0.95)
WISHES = {
    "greedy": GREEDY,
    "greedy with penalties": wish(repetition_penalty=1.3, frequency_penalty=0.4),
    "drawn": DRAWN,
    "drawn with everything": wish(
        temperature=0.7,
        top_k=30,
        min_p=0.02,
        presence_penalty=0.5,
        repetition_penalty=1.1,
        logit_bias=((5, 2.0),),
        min_tokens=10,
    ),
}


@pytest.fixture(scope="module")
def neighbour(small_checkpoint: Path) -> LoadedModel:
    """A draft model that agrees with the small one now and then."""
    return perturbed(load_model(small_checkpoint, dtype="float32", device=TEST_DEVICE))


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A very small Gemma 3: one KV group of full layers, two of a window of 10 tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Gemma3ForCausalLM(Gemma3TextConfig(**SIX_LAYERS)).eval()
    return save_model(model, tmp_path_factory.mktemp("windowed"))


@pytest.mark.parametrize("sampling", WISHES.values(), ids=WISHES)
def test_what_repeats_itself_is_guessed_and_the_text_stays(
    sampling: Wish, small_model: LoadedModel
) -> None:
    plain = run(small_model, "nobody", sampling)
    guessed = run(small_model, "ngram", sampling, is_scarce=True)
    assert guessed.tokens == plain.tokens
    assert 0 < guessed.num_accepted < guessed.num_placed
    assert guessed.num_preempted >= 10
    assert guessed.num_hits >= 5


@pytest.mark.parametrize(
    ("name", "how"), [*((name, "coupled") for name in WISHES), ("drawn", "greedy")]
)
def test_a_draft_model_changes_no_token(
    name: str, how: str, small_model: LoadedModel, neighbour: LoadedModel
) -> None:
    sampling = WISHES[name]
    plain = run(small_model, "nobody", sampling)
    drafted = run(small_model, (neighbour, how), sampling, is_scarce=True)  # type: ignore[arg-type]
    assert drafted.tokens == plain.tokens
    assert 0 < drafted.num_accepted < drafted.num_placed
    assert drafted.num_preempted >= 10
    assert drafted.num_hits >= 5


@pytest.mark.parametrize("is_scarce", [False, True])
def test_a_model_that_drafts_for_itself_is_always_right(
    is_scarce: bool, small_model: LoadedModel
) -> None:
    """So its KV holds what the target's holds, after chunks, rejections and prefix hits too."""
    for sampling in (GREEDY, DRAWN):
        ran = run(small_model, (small_model, "coupled"), sampling, is_scarce=is_scarce)
        assert ran.num_accepted == ran.num_placed > 0


def test_it_takes_a_step_for_four_tokens_then(small_model: LoadedModel) -> None:
    """The first token comes with the prompt, without drafts."""
    text = [[7, 8, 9]]
    plain = run(small_model, "nobody", GREEDY, texts=text)
    drafted = run(small_model, (small_model, "coupled"), GREEDY, texts=text)
    assert (plain.num_steps, drafted.num_steps) == (NUM_OUTPUTS, 1 + NUM_OUTPUTS // 4)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_windows_change_nothing(sampling: Wish, windowed: Path) -> None:
    model = load_model(windowed, dtype="float32", device=TEST_DEVICE)
    other = perturbed(load_model(windowed, dtype="float32", device=TEST_DEVICE), share=0.05)
    assert len(model.kv_groups(8)) == 3
    plain = run(model, "nobody", sampling)
    drafters: tuple[Who, ...] = ("ngram", (other, "coupled"))
    for who in drafters:
        ran = run(model, who, sampling, is_scarce=True)
        assert ran.tokens == plain.tokens
        assert 0 < ran.num_accepted < ran.num_placed


def test_a_model_with_windows_drafts_for_itself_from_its_own_kv(windowed: Path) -> None:
    model = load_model(windowed, dtype="float32", device=TEST_DEVICE)
    ran = run(model, (model, "coupled"), GREEDY, is_scarce=True)
    assert ran.num_accepted == ran.num_placed > 0


def test_a_model_without_windows_drafts_for_one_with_them(windowed: Path, tmp_path: Path) -> None:
    config = Gemma3TextConfig(**{**SIX_LAYERS, "layer_types": ["full_attention"] * 6})
    full = load_model(
        save_model(Gemma3ForCausalLM(config).eval(), tmp_path), dtype="float32", device=TEST_DEVICE
    )
    model = load_model(windowed, dtype="float32", device=TEST_DEVICE)
    plain = run(model, "nobody", GREEDY)
    assert [group.kind for group in full.kv_groups(8)] == ["full"]
    assert run(model, (full, "coupled"), GREEDY, is_scarce=True).tokens == plain.tokens


def test_probabilistic_drafts_leave_greedy_texts_alone(
    small_model: LoadedModel, neighbour: LoadedModel
) -> None:
    plain = run(small_model, "nobody", GREEDY)
    drafted = run(small_model, (neighbour, "probabilistic"), GREEDY, is_scarce=True)
    assert drafted.tokens == plain.tokens
