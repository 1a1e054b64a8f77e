"""Tokens become text, and the text ends, however it is cut into tokens and results."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, pre_tokenizers

from engine.sampling import SamplingParams
from engine.text.completion_text import CompletionText
from engine.text.tokenizer import Tokenizer

CHARACTERS = "ab€"
"""The last of them takes three bytes."""


def tokenizer_of_pieces() -> Tokenizer:
    """Returns one whose tokens are all ways to put one to three bytes of these characters."""
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = sorted({letter for c in CHARACTERS for letter in alphabet.pre_tokenize_str(c)[0][0]})
    names = ["".join(each) for size in (1, 2, 3) for each in product(letters, repeat=size)]
    inner = HFTokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    inner.pre_tokenizer = alphabet
    inner.decoder = decoders.ByteLevel()
    return Tokenizer(inner)


TOKENIZER = tokenizer_of_pieces()
BYTE_OF = {
    TOKENIZER.spelling(token_id).utf8: token_id
    for token_id in range(sum(5**size for size in (1, 2, 3)))
}
"""Token ids by the bytes of the token."""

TEXTS = st.text(alphabet=CHARACTERS, max_size=25)
STOPS = st.lists(st.text(alphabet=CHARACTERS, min_size=1, max_size=4), max_size=3)


def cut(utf8: bytes, sizes: list[int]) -> list[int]:
    """Returns a text's tokens, of so many bytes each, over and over."""
    token_ids, start, turn = [], 0, 0
    while start < len(utf8):
        end = start + sizes[turn % len(sizes)]
        token_ids.append(BYTE_OF[utf8[start:end]])
        start, turn = end, turn + 1
    return token_ids


def end_of(text: str, stops: list[str]) -> tuple[int, int] | None:
    """Returns where the stop that is complete first begins and ends; the longest such one."""
    found = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    return min(found)[::-1] if found else None


def say(
    token_ids: list[int], per_result: int, sampling: SamplingParams
) -> tuple[str, bool, list[int]]:
    """Returns the text of tokens that come so many at once, whether it was stopped, and where
    each token that was used begins."""
    text = CompletionText(TOKENIZER, sampling)
    said, starts = "", []
    for start in range(0, len(token_ids), per_result):
        part = token_ids[start : start + per_result]
        new = text.push(part, is_last=start + per_result >= len(token_ids))
        said += new.text
        starts += new.starts
        if text.stopped:
            break
    return said, text.stopped, starts


@given(
    text=TEXTS,
    stops=STOPS,
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    per_result=st.integers(1, 5),
    include=st.booleans(),
)
def test_any_cut_of_a_text_into_tokens_gives_the_same_text_and_end(
    text: str, stops: list[str], sizes: list[int], per_result: int, include: bool
) -> None:
    token_ids = cut(text.encode(), sizes)
    sampling = SamplingParams(stop=tuple(stops), include_stop_str_in_output=include)
    said, stopped, starts = say(token_ids, per_result, sampling)
    end = end_of(text, stops)
    if end is None:
        assert (said, stopped) == (text, False)
        assert len(starts) == len(token_ids)
    else:
        assert said == text[: end[1] if include else end[0]]
        assert stopped
        # Every token up to the one with the last byte of the stop string is used, and no other.
        num_bytes = len(text[: end[1]].encode())
        used = [len(TOKENIZER.spelling(t).utf8 or b"") for t in token_ids[: len(starts)]]
        assert sum(used[:-1]) < num_bytes <= sum(used)


@given(text=TEXTS, sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_each_token_begins_behind_the_whole_characters_before_it(
    text: str, sizes: list[int]
) -> None:
    token_ids = cut(text.encode(), sizes)
    _, _, starts = say(token_ids, 3, SamplingParams())
    num_bytes = 0
    for token_id, start in zip(token_ids, starts, strict=True):
        before = text.encode()[:num_bytes].decode(errors="ignore")
        assert start == len(before)
        num_bytes += len(TOKENIZER.spelling(token_id).utf8 or b"")


@pytest.mark.parametrize("include", [False, True])
def test_the_stop_string_is_said_only_where_it_is_wanted(include: bool) -> None:
    sampling = SamplingParams(stop=("b€",), include_stop_str_in_output=include)
    said, stopped, _ = say(cut("aab€b".encode(), [2]), 1, sampling)
    assert (said, stopped) == ("aab€" if include else "aa", True)


def test_text_within_the_least_number_of_tokens_is_not_searched() -> None:
    sampling = SamplingParams(stop=("a",), min_tokens=2)
    assert say(cut(b"aabab", [1]), 1, sampling)[0] == "aab"
