from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.runner.input_batch import InputBatch
from engine.runner.ngram_drafter import NgramDrafter, starts_of_drafts
from engine.runner.sampler import Sampler
from tests.engine.runner.builders import new, step

SAMPLER = Sampler(vocab_size=100)


def drafts(text: list[int], *, most: int = 3, shortest: int = 2, longest: int = 4) -> list[int]:
    """Returns the drafts behind a text whose last token has just been sampled."""
    drafter = NgramDrafter(
        num_speculative_tokens=most,
        prompt_lookup_min=shortest,
        prompt_lookup_max=longest,
        max_model_len=16,
    )
    batch = InputBatch(max_num_seqs=2, max_model_len=16, block_size=16)
    batch.apply(step({"a": len(text) - 1}, new("a", text[:-1], [1])))
    inputs = batch.prepare({"a": len(text) - 1})
    batch.commit(inputs, [text[-1:]])
    return drafter.propose(batch, inputs, SAMPLER).token_ids.get("a", [])


def test_what_followed_the_last_time_is_proposed() -> None:
    assert drafts([1, 2, 3, 4, 5, 9, 1, 2]) == [3, 4, 5]


def test_the_longest_repeat_wins_over_an_earlier_one() -> None:
    assert drafts([7, 2, 8, 1, 7, 2, 9, 1, 7, 2]) == [9, 1, 7]


def test_of_equal_repeats_the_first_wins() -> None:
    assert drafts([1, 2, 30, 1, 2, 40, 1, 2]) == [30, 1, 2]


def test_a_repeat_may_overlap_the_end() -> None:
    assert drafts([5, 5, 5, 5]) == [5]


def test_a_repeat_that_is_too_short_is_none() -> None:
    assert drafts([1, 2, 3, 9, 2], shortest=2) == []
    assert drafts([1, 2, 3, 9, 2], shortest=1) == [3, 9, 2]


def test_drafts_end_where_the_text_does() -> None:
    assert drafts([1, 2, 3, 1, 2], most=5) == [3, 1, 2]


def test_nothing_is_proposed_beyond_the_models_length() -> None:
    assert drafts([1, 2] * 7, most=5) == [1, 2]
    assert drafts([1, 2] * 8, most=5) == []


def test_a_prompt_in_mid_prefill_is_left_alone() -> None:
    drafter = NgramDrafter(
        num_speculative_tokens=3, prompt_lookup_min=1, prompt_lookup_max=3, max_model_len=16
    )
    batch = InputBatch(max_num_seqs=2, max_model_len=16, block_size=16)
    batch.apply(step({"a": 2}, new("a", [1, 1, 1, 1], [1])))
    inputs = batch.prepare({"a": 2})
    batch.commit(inputs, [])
    assert drafter.propose(batch, inputs, SAMPLER).token_ids == {}


def plainly(text: list[int], shortest: int, longest: int) -> int:
    """Returns where the draft begins, by trying everything."""
    for size in range(min(longest, len(text) - 1), shortest - 1, -1):
        for start in range(len(text) - size):
            if text[start : start + size] == text[-size:]:
                return start + size
    return -1


@given(
    texts=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), min_size=1, max_size=5),
    shortest=st.integers(1, 3),
    more=st.integers(0, 3),
)
def test_all_rows_together_give_what_trying_everything_gives(
    texts: list[list[int]], shortest: int, more: int
) -> None:
    tokens = np.full((len(texts), max(map(len, texts))), 1, np.int32)  # 1 occurs in texts too
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = text
    lengths = np.array([len(text) for text in texts])
    starts = starts_of_drafts(tokens, lengths, shortest=shortest, longest=shortest + more)
    assert starts.tolist() == [plainly(text, shortest, shortest + more) for text in texts]
