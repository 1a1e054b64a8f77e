from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from engine.config import ConfigError, SpeculationConfig
from engine.serve_arguments import add_serve_arguments
from engine.settings import EngineSettings
from engine.speculative_settings import SpeculativeSettings, parse_speculative_config


def parsed(**values: object) -> SpeculativeSettings:
    return parse_speculative_config(json.dumps({"num_speculative_tokens": 3, **values}))


def test_n_grams_need_no_lookahead() -> None:
    settings = parsed(method="ngram", prompt_lookup_max=4, prompt_lookup_min=2)
    assert settings.lookup == (2, 4)
    assert settings.config() == SpeculationConfig(method="ngram", num_speculative_tokens=3)


@pytest.mark.parametrize(
    ("given", "lookup"),
    [
        ({}, (5, 5)),
        ({"prompt_lookup_max": 3}, (3, 3)),
        ({"prompt_lookup_min": 2}, (2, 2)),
    ],
)
def test_n_grams_that_are_not_set_are_as_in_vllm(
    given: dict[str, int], lookup: tuple[int, int]
) -> None:
    assert parsed(method="ngram", **given).lookup == lookup


def test_a_model_alone_is_a_draft_model_with_slots_for_its_drafts() -> None:
    settings = parsed(model="drafts/small")
    assert (settings.method, settings.model) == ("draft_model", Path("drafts/small"))
    assert settings.config() == SpeculationConfig(
        method="draft_model",
        num_speculative_tokens=3,
        num_lookahead_tokens=3,
        draft_slots_per_request=1,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is no JSON"),
        ("[]", "must be a JSON object"),
        ('{"num_speculative_tokens": 3}', "lacks method"),
        ('{"method": "ngram"}', "lacks num_speculative_tokens"),
        ('{"method": "eagle", "num_speculative_tokens": 3}', "choose ngram or draft_model"),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "between 1 and 128"),
        ('{"method": "ngram", "num_speculative_tokens": true}', "must be a whole number"),
        ('{"method": "ngram", "num_speculative_tokens": 3, "ngrams": 2}', "has ngrams: this"),
        ('{"method": "draft_model", "num_speculative_tokens": 3}', "say with which model"),
        (
            '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 4, '
            '"prompt_lookup_max": 2}',
            "prompt_lookup_min is 4",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 3, "model": "drafts"}',
            "belongs to method 'draft_model'",
        ),
        (
            '{"model": "drafts", "num_speculative_tokens": 3, "draft_sample_method": "beam"}',
            "choose coupled, greedy or probabilistic",
        ),
    ],
)
def test_what_cannot_be_used_is_said(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_speculative_config(text)


def test_a_flag_that_cannot_be_used_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="serve")
    add_serve_arguments(parser)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--speculative-config", '{"method": "ngram", "tokens": 3}'])
    assert "has tokens: this engine knows method, num_speculative_tokens" in capsys.readouterr().err


def scheduled_tokens(settings: EngineSettings) -> int:
    return settings.config(num_gpu_blocks=10, max_position=512).scheduler.scheduled_tokens


def test_the_token_budget_leaves_room_for_a_draft_models_input() -> None:
    """A request alone takes the whole budget, and its draft model's first pass a token more."""
    speculative = parsed(model="drafts")
    settings = EngineSettings(max_num_batched_tokens=64, speculative_config=speculative)
    assert scheduled_tokens(settings) == 63


def test_without_a_draft_model_the_token_budget_is_all_of_it() -> None:
    settings = EngineSettings(max_num_batched_tokens=64, speculative_config=parsed(method="ngram"))
    assert scheduled_tokens(settings) == 64


def test_a_token_budget_that_is_set_stays() -> None:
    settings = EngineSettings(
        max_num_batched_tokens=64,
        max_num_scheduled_tokens=32,
        speculative_config=parsed(model="drafts"),
    )
    assert scheduled_tokens(settings) == 32


def test_an_input_that_drafts_alone_fill_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 1"):
        EngineSettings(max_num_batched_tokens=1, speculative_config=parsed(model="drafts"))


def test_scripted_tokens_and_drafts_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="verifies no drafts"):
        EngineSettings(scripted_step_seconds=0.1, speculative_config=parsed(method="ngram"))
