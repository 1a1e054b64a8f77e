"""A checkpoint's tokenizer: text into tokens and back, and what its configuration adds to that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HFTokenizer

from engine.text.token_spelling import Spelling, TokenSpelling

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
"""Those that a chat template may name."""


class Tokenizer:
    """A checkpoint's `tokenizer.json`.

    Args:
        inner: what it holds.
        special_tokens: texts of the special tokens, by their names in the configuration.
        adds_bos: texts of prompts begin with `bos_token`, whether `inner` adds it or not.
        chat_template: source of the model's chat template; None where it has none.
    """

    def __init__(
        self,
        inner: HFTokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        adds_bos: bool = False,
        chat_template: str | None = None,
    ) -> None:
        self._inner = inner
        self._spelling = TokenSpelling(inner)
        self.special_tokens = dict(special_tokens or {})
        self.chat_template = chat_template
        bos = self.special_tokens.get("bos_token")
        self._bos_token_id = inner.token_to_id(bos) if adds_bos and bos is not None else None

    @classmethod
    def load(cls, model_directory: Path) -> Tokenizer | None:
        """Returns the tokenizer of a checkpoint; None where it has no `tokenizer.json`."""
        path = model_directory / "tokenizer.json"
        if not path.is_file():
            return None
        settings = _read_json(model_directory / "tokenizer_config.json")
        return cls(
            HFTokenizer.from_file(str(path)),
            special_tokens=_special_tokens(settings),
            adds_bos=settings.get("add_bos_token") is True,
            chat_template=_chat_template(model_directory, settings),
        )

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a prompt, with those that the model wants at its beginning."""
        token_ids = list(self._inner.encode(text).ids)
        if self._bos_token_id is not None and token_ids[:1] != [self._bos_token_id]:
            token_ids.insert(0, self._bos_token_id)
        return token_ids

    def encode_as_it_is(self, text: str) -> list[int]:
        """Returns the tokens of a text that spells its special tokens itself."""
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of tokens, special ones left out."""
        return str(self._inner.decode(list(token_ids), skip_special_tokens=True))

    def spelling(self, token_id: int) -> Spelling:
        """Returns how one token is written, special ones too."""
        return self._spelling.of(token_id)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the special tokens' texts, which stand alone or as an object's `content`."""
    tokens = {}
    for name in SPECIAL_TOKENS:
        token = settings.get(name)
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            tokens[name] = text
    return tokens


def _chat_template(model_directory: Path, settings: Mapping[str, Any]) -> str | None:
    """Returns the template, from a file of its own or the configuration; of several the default."""
    path = model_directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template}
        template = named.get("default")
    return template if isinstance(template, str) else None
