"""A model's vocabulary as xgrammar wants it: what text each token stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOKENIZER_FILE = "tokenizer.json"


_NEVER_IN_JSON = re.compile(rb"[\x00-\x09\x0b\x0c\x0e-\x1f]")


def load_vocabulary(
    model_directory: Path, *, vocab_size: int, eos_token_ids: Sequence[int], for_json: bool = False
) -> Any:
    """Returns xgrammar's `TokenizerInfo` of a checkpoint.

    Tokens that stand for no text are let through by no grammar: special ones, which are left out of
    the text that the client reads, and ids that only pad the model's logits.

    Args:
        vocab_size: of the model; its logits are as wide, its tokenizer may know fewer or more.
        eos_token_ids: let through where a text may end, and nowhere else.
        for_json: leave out control characters as well, of which JSON only knows line breaks.
            xgrammar would let them through in strings whose length is limited. A tab may stand
            between JSON's tokens, but is not worth a difference.
    """
    from transformers import PreTrainedTokenizerFast
    from xgrammar import TokenizerInfo

    path = model_directory / TOKENIZER_FILE
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(path))
    found = TokenizerInfo.from_huggingface(
        tokenizer, vocab_size=vocab_size, stop_token_ids=list(eos_token_ids)
    )
    special = _special_token_ids(path)
    texts = [""] * vocab_size
    for text, token_id in tokenizer.get_vocab().items():
        if token_id < vocab_size and token_id not in special:
            texts[token_id] = text
    if for_json:
        for token_id, content in enumerate(found.decoded_vocab):
            if token_id not in eos_token_ids and _NEVER_IN_JSON.search(content):
                texts[token_id] = ""
    return TokenizerInfo(
        texts,
        found.vocab_type,
        vocab_size=vocab_size,
        stop_token_ids=list(eos_token_ids),
        add_prefix_space=found.add_prefix_space,
    )


def _special_token_ids(path: Path) -> frozenset[int]:
    added = json.loads(path.read_text(encoding="utf-8")).get("added_tokens") or ()
    return frozenset(int(token["id"]) for token in added if token.get("special"))
