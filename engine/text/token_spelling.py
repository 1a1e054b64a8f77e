r"""How single tokens are written, for those who want to see them one by one.

A token is written as it is in the middle of a text, with the space that belongs to it. One that is
no whole character is written as OpenAI's API does it, `bytes:\xe2\x82`, and its bytes are told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenizers import Tokenizer as HFTokenizer
from tokenizers import pre_tokenizers

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are no character."""

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""How vocabularies that fall back on bytes name a token of one byte."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A token's text and bytes; None where they are not known."""

    text: str
    utf8: bytes | None


class TokenSpelling:
    """The texts of a tokenizer's tokens; each is looked up once."""

    def __init__(self, inner: HFTokenizer) -> None:
        self._inner = inner
        self._special = {
            token_id: token.content
            for token_id, token in inner.get_added_tokens_decoder().items()
            if token.special
        }
        self._before = inner.encode("a", add_special_tokens=False).ids
        self._num_before = len(self._decode(self._before))
        self._known: dict[int, Spelling] = {}

    def of(self, token_id: int) -> Spelling:
        """Returns how a token is written."""
        known = self._known.get(token_id)
        if known is None:
            known = self._known[token_id] = self._look_up(token_id)
        return known

    def _look_up(self, token_id: int) -> Spelling:
        text = self._special.get(token_id)
        if text is None:
            text = self._decode([*self._before, token_id])[self._num_before :]
        if REPLACEMENT not in text:
            return Spelling(text, text.encode())
        utf8 = _bytes_of(self._inner.id_to_token(token_id) or "")
        if utf8 is None:
            return Spelling(text, None)
        return Spelling("bytes:" + "".join(f"\\x{byte:02x}" for byte in utf8), utf8)

    def _decode(self, token_ids: list[int]) -> str:
        return str(self._inner.decode(token_ids, skip_special_tokens=False))


def spelled_without_tokenizer(token_id: int) -> Spelling:
    """Returns what stands for a token whose text nobody knows, as vLLM writes it."""
    return Spelling(f"token_id:{token_id}", None)


def _bytes_of(name: str) -> bytes | None:
    """Returns the bytes of a token that is not whole characters, from its name in the vocabulary.

    It names a byte, or has a letter for each byte (the alphabet of byte-level BPE).
    """
    one = BYTE_TOKEN.fullmatch(name)
    if one:
        return bytes([int(one[1], 16)])
    alphabet = _byte_alphabet()
    return bytes(alphabet[letter] for letter in name) if set(name) <= alphabet.keys() else None


def _byte_alphabet() -> dict[str, int]:
    """Returns the byte that each letter stands for.

    Printable characters of Latin-1 stand for their own byte, the letters from U+0100 on for the
    other bytes in their order.
    """
    letters = set(pre_tokenizers.ByteLevel.alphabet())
    own = {chr(byte): byte for byte in range(256) if chr(byte) in letters}
    others = (byte for byte in range(256) if chr(byte) not in own)
    return own | dict(zip(sorted(letters - own.keys()), others, strict=True))
