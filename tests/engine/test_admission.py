from dataclasses import replace

import pytest

from engine.admission import complaint_about, room_for_output
from engine.config import EngineConfig, KVGroupConfig
from tests.engine.builders import config

CONFIG = config(num_usable_blocks=10, block_size=4, max_model_len=100)


@pytest.mark.parametrize(("num_prompt", "max_tokens"), [(1, 40), (40, 1), (20, 21)])
def test_what_fills_the_pool_to_the_last_position_fits(num_prompt: int, max_tokens: int) -> None:
    assert complaint_about(CONFIG, num_prompt, max_tokens) is None


def test_one_token_more_than_the_pool_holds_does_not_fit() -> None:
    complaint = complaint_about(CONFIG, 20, 22)
    assert complaint is not None
    assert "11 KV blocks of 4 tokens, but the engine has 10" in complaint


def test_oversize_is_let_in_when_it_is_allowed() -> None:
    assert complaint_about(replace(CONFIG, allow_oversize=True), 20, 22) is None


def test_the_models_length_is_a_limit_even_then() -> None:
    complaint = complaint_about(replace(CONFIG, allow_oversize=True), 50, 51)
    assert complaint is not None
    assert "together 101, but max_model_len is 100" in complaint


def with_groups(*groups: KVGroupConfig, num_batched_tokens: int = 4) -> EngineConfig:
    settings = config(
        num_usable_blocks=10,
        block_size=4,
        max_model_len=100,
        max_num_batched_tokens=num_batched_tokens,
    )
    return replace(settings, cache=replace(settings.cache, groups=groups))


def test_every_kv_group_needs_its_blocks() -> None:
    both = with_groups(KVGroupConfig("full", 4), KVGroupConfig("sliding_window", 4, 5))
    assert complaint_about(both, 20, 9) is None
    complaint = complaint_about(both, 20, 10)
    assert complaint is not None
    assert "11 KV blocks" in complaint


def test_a_window_alone_takes_any_length() -> None:
    assert complaint_about(with_groups(KVGroupConfig("sliding_window", 4, 5)), 60, 40) is None


@pytest.mark.parametrize(("num_prompt", "room"), [(1, 40), (20, 21), (40, 1), (41, 1), (99, 1)])
def test_the_room_for_outputs_is_what_just_fits(num_prompt: int, room: int) -> None:
    assert room_for_output(CONFIG, num_prompt) == room


def test_the_room_ends_at_the_models_length() -> None:
    assert room_for_output(replace(CONFIG, allow_oversize=True), 30) == 70
