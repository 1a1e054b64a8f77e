from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sampling import SamplingParams
from engine.text.completion_text import CompletionText, NewText
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer
from tests.engine.text.small_tokenizers import byte_tokenizer, word_tokenizer

TOKENIZERS = {"byte": byte_tokenizer(), "word": word_tokenizer()}


def text_of(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push((token,)) for token in token_ids), detokenizer.finish()]


@given(text=st.text(max_size=80))
def test_text_comes_out_whole_however_many_tokens_a_character_takes(text: str) -> None:
    tokenizer = TOKENIZERS["byte"]
    assert "".join(text_of(tokenizer, tokenizer.encode(text))) == text


@given(token_ids=st.lists(st.integers(0, 255), max_size=40))
def test_broken_bytes_come_out_as_the_whole_decodes(token_ids: list[int]) -> None:
    tokenizer = TOKENIZERS["byte"]
    assert "".join(text_of(tokenizer, token_ids)) == tokenizer.decode(token_ids)


@given(token_ids=st.lists(st.integers(0, 4), max_size=40))
def test_spaces_between_words_are_kept(token_ids: list[int]) -> None:
    tokenizer = TOKENIZERS["word"]
    assert "".join(text_of(tokenizer, token_ids)) == tokenizer.decode(token_ids)


def test_a_character_comes_with_its_last_byte() -> None:
    tokenizer = TOKENIZERS["byte"]
    assert text_of(tokenizer, tokenizer.encode("€!")) == ["", "", "€", "!", ""]


@given(token_ids=st.lists(st.integers(128, 255), min_size=60, max_size=200))
def test_endless_garbage_is_not_held_back_for_ever(token_ids: list[int]) -> None:
    pieces = text_of(TOKENIZERS["byte"], token_ids)
    silences = "".join("x" if piece else "." for piece in pieces).split("x")
    assert max(map(len, silences)) < 60


def completion_text(stop: str, min_tokens: int = 0) -> CompletionText:
    sampling = SamplingParams(max_tokens=50, min_tokens=min_tokens, stop=(stop,))
    return CompletionText(TOKENIZERS["byte"], sampling)


def test_tokens_after_the_one_that_completes_a_stop_are_not_used() -> None:
    token_ids = TOKENIZERS["byte"].encode("one two three")
    new = completion_text("two").push(token_ids, is_last=False)
    assert (new.text, len(new.starts)) == ("one ", 7)


def test_text_within_min_tokens_is_not_searched() -> None:
    token_ids = TOKENIZERS["byte"].encode("two two")
    new = completion_text("two", min_tokens=4).push(token_ids, is_last=True)
    assert (new.text, len(new.starts)) == ("two ", 7)


def test_what_a_stop_held_back_comes_out_at_the_end() -> None:
    token_ids = TOKENIZERS["byte"].encode("tw")
    new = completion_text("two").push(token_ids, is_last=True)
    assert (new.text, len(new.starts)) == ("tw", 2)


@pytest.mark.parametrize("is_last", [True, False])
def test_without_tokenizer_there_is_no_text(is_last: bool) -> None:
    text = CompletionText(None, SamplingParams(stop=("a",)))
    assert text.push([1, 2], is_last=is_last) == NewText("", [0, 0])
