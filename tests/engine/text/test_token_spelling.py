"""How single tokens are written."""

from __future__ import annotations

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as HFTokenizer

from engine.text.token_spelling import Spelling, TokenSpelling, spelled_without_tokenizer
from tests.engine.text.small_tokenizers import byte_tokenizer, word_tokenizer


def test_a_word_has_the_space_in_front_of_it() -> None:
    assert word_tokenizer().spelling(1) == Spelling(" green", b" green")


def test_a_piece_of_a_word_has_none() -> None:
    assert word_tokenizer().spelling(3) == Spelling("ish", b"ish")


def test_part_of_a_character_is_written_as_its_bytes() -> None:
    tokenizer = byte_tokenizer()
    token_ids = tokenizer.encode_as_it_is("€")
    spellings = [tokenizer.spelling(token_id) for token_id in token_ids]
    assert [one.text for one in spellings] == [r"bytes:\xe2", r"bytes:\x82", r"bytes:\xac"]
    assert b"".join(one.utf8 or b"" for one in spellings).decode() == "€"


def test_a_token_of_one_byte_is_written_as_it() -> None:
    vocabulary = {"a": 0, "<0xE2>": 1, "<0x41>": 2}
    inner = HFTokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    spelling = TokenSpelling(inner)
    assert spelling.of(1) == Spelling(r"bytes:\xe2", b"\xe2")
    assert spelling.of(2) == Spelling("A", b"A")


def test_a_special_token_is_written_too() -> None:
    inner = HFTokenizer(models.BPE({"a": 0}, []))
    inner.add_special_tokens([AddedToken("</s>", special=True)])
    assert TokenSpelling(inner).of(1) == Spelling("</s>", b"</s>")


def test_a_token_whose_text_nobody_knows_is_written_as_its_id() -> None:
    assert spelled_without_tokenizer(17) == Spelling("token_id:17", None)
