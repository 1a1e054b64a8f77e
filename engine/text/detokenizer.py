"""Turns a stream of tokens into a stream of text.

A token may end in the middle of a character, or change how the one before it is written, so text
is only given out once later tokens cannot change it.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.text.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for bytes that are no character: unfinished ones at the end, or broken ones anywhere."""

CONTEXT_TOKENS = 6
"""Tokens before the new ones that are decoded with them, since they decide about spaces."""

MAX_WINDOW_TOKENS = 48
"""Beyond this many tokens without a clean end the text is broken anyhow and is given out."""


class Detokenizer:
    """The text of one request's output, token by token.

    Keeps a window of recent tokens. Decoding the window with and without its newest tokens shows
    what they add. Only the very last character can still change: an unfinished one decodes to a
    single replacement character, so that one is held back until more tokens or the end come.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = ""
        """What the window has given out, its context included."""

    def push(self, token_ids: Sequence[int]) -> str:
        """Returns the text that these tokens settle."""
        self._window += token_ids
        text = self._tokenizer.decode(self._window)
        if text.endswith(REPLACEMENT) and len(self._window) <= MAX_WINDOW_TOKENS:
            return self._give(text[:-1])
        new = self._give(text)
        self._window = self._window[-CONTEXT_TOKENS:]
        self._given = self._tokenizer.decode(self._window)
        return new

    def finish(self) -> str:
        """Returns what was held back, since nothing more comes."""
        return self._give(self._tokenizer.decode(self._window))

    def _give(self, text: str) -> str:
        if len(text) <= len(self._given):
            return ""
        new = text[len(self._given) :]
        self._given = text
        return new
