"""Tokenizers that need no checkpoint."""

from __future__ import annotations

from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, pre_tokenizers

from engine.text.tokenizer import Tokenizer


def byte_tokenizer() -> Tokenizer:
    """A token a byte: characters beyond ASCII take several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = HFTokenizer(models.BPE({symbol: i for i, symbol in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return Tokenizer(inner)


def word_tokenizer() -> Tokenizer:
    """A token a word, with the space in front of it; the decoder drops the first space."""
    words = ["▁red", "▁green", "▁blue", "ish", "."]
    inner = HFTokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "."))
    inner.decoder = decoders.Metaspace()
    return Tokenizer(inner)
