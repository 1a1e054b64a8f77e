"""Makes tokens of prompts, as the server does: texts, conversations, or tokens that are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer

TokenIds = Sequence[int]
Message = Mapping[str, Any]
Prompt = tuple[str | None, tuple[int, ...]]
"""Its text, None where it was given as tokens, and its tokens."""


class PromptReader:
    """Reads prompts for one model.

    Args:
        chat_template: source of the template of conversations; None is the model's own.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, *, vocab_size: int, chat_template: str | None
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._chat_template = chat_template

    def read(self, prompt: str | TokenIds) -> tuple[str | None, tuple[int, ...]]:
        """Returns a prompt's text, where it has one, and its tokens."""
        if isinstance(prompt, str):
            if self._tokenizer is None:
                raise ValueError("this model has no tokenizer.json: give prompts as token ids")
            text, token_ids = prompt, tuple(self._tokenizer.encode(prompt))
        else:
            text, token_ids = None, tuple(prompt)
        if not token_ids:
            raise ValueError("a prompt has no tokens: give at least one")
        if min(token_ids) < 0 or max(token_ids) >= self._vocab_size:
            raise ValueError(
                f"a token id of a prompt is outside 0 to {self._vocab_size - 1}, the model's "
                "vocabulary"
            )
        return text, token_ids

    def read_chat(
        self, messages: Sequence[Message], add_generation_prompt: bool
    ) -> tuple[str, tuple[int, ...]]:
        """Returns a conversation as its template spells it, and the tokens of that."""
        if self._tokenizer is None:
            raise ValueError("this model has no tokenizer.json: it cannot chat")
        source = self._chat_template or self._tokenizer.chat_template
        if source is None:
            raise ValueError("this model has no chat template: give one as LLM(chat_template=...)")
        text = ChatTemplate(source).render(
            messages,
            special_tokens=self._tokenizer.special_tokens,
            add_generation_prompt=add_generation_prompt,
        )
        token_ids = tuple(self._tokenizer.encode_as_it_is(text))
        if not token_ids:
            raise ValueError("the messages give no tokens: say something")
        return text, token_ids
