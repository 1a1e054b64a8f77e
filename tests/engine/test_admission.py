from dataclasses import replace

import pytest

from engine.admission import complaint_about
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
