"""Made-up tokens: texts that share what the recorded ones shared, and nothing else.

The record says of each text (a prompt, a turn's prompt, prompt and outputs at the end) with which
other request it shares its longest prefix, in whole blocks. That is a tree of blocks, and each
block of the tree gets tokens of its own:

    a    0 1 2                     text of a: blocks 0 1 2
    b    0 1 | 3 4                 b shares 2 blocks with a
    c    0 1 | 3 | 5               c shares 3 blocks with b

A request has several texts in its life, each begins with what was kept of the one before. Its last
one says what its outputs were all along: they are known here before they are sampled.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

MAX_TOKEN = 1 << 31
"""Token ids are 32-bit; beyond two thousand million different tokens they come round again."""


@dataclass(slots=True)
class _Text:
    """One text of a request: its blocks, and how many tokens of the text before it begin it."""

    blocks: list[int]
    num_kept: int
    num_tokens: int


class MadeUpTokens:
    """The texts of all requests of a run, told in the order in which the run's record tells them.

    Args:
        block_size: tokens of a block whose hash was recorded.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._num_blocks = 0
        self._texts: dict[int, list[_Text]] = {}

    def add(
        self,
        request: int,
        num_tokens: int,
        *,
        num_kept: int = 0,
        prefix_request: int | None = None,
        num_shared_tokens: int = 0,
    ) -> None:
        """Adds the next text of a request.

        Args:
            num_tokens: length of the text.
            num_kept: tokens of its text before that it begins with.
            prefix_request: with whom it shares `num_shared_tokens`; None: with nobody.
        """
        texts = self._texts.setdefault(request, [])
        size = self._block_size
        blocks = texts[-1].blocks[: num_kept // size] if texts else []
        others = self._texts.get(prefix_request, ()) if prefix_request is not None else ()
        if others:
            blocks += others[-1].blocks[len(blocks) : num_shared_tokens // size]
        text = _Text(blocks, num_kept, num_tokens)
        self._grow(text, num_tokens // size)
        texts.append(text)

    def beginning_like(self, prefixes: Mapping[int, tuple[int, int]]) -> MadeUpTokens:
        """Returns the texts as if some requests had begun like others; these stay as they are.

        Args:
            prefixes: request -> whose first text it begins like, and for how many tokens. A request
                that is not known here has nothing to give.
        """
        changed = MadeUpTokens(self._block_size)
        changed._num_blocks = self._num_blocks
        for request, texts in self._texts.items():
            copies = [_Text(list(text.blocks), text.num_kept, text.num_tokens) for text in texts]
            changed._texts[request] = copies
        for request in prefixes.keys() & self._texts.keys():
            donor, num_tokens = prefixes[request]
            given = self._texts[donor][0].blocks if donor in self._texts else []
            num_blocks = min(num_tokens // self._block_size, len(given))
            for number, text in enumerate(changed._texts[request]):
                if number:
                    num_blocks = min(num_blocks, text.num_kept // self._block_size)
                num_begun = min(num_blocks, len(text.blocks))
                text.blocks[:num_begun] = given[:num_begun]
        return changed

    def __contains__(self, request: int) -> bool:
        return request in self._texts

    def span(self, request: int, text: int) -> tuple[int, int]:
        """Returns how much a text keeps of the one before, and its length."""
        found = self._texts[request][text]
        return found.num_kept, found.num_tokens

    def tokens(self, request: int, text: int, begin: int, end: int) -> array[int]:
        """Returns the tokens [begin, end) of a request's text number `text`, from 0."""
        tokens = array("i")
        size = self._block_size
        while begin < end:
            source, limit = self._latest(request, text, begin)
            stop = min(end, limit)
            first, last = begin // size, -(-stop // size)
            self._grow(source, last)
            blocks = np.array(source.blocks[first:last], dtype=np.int64)
            starts = blocks * size % (MAX_TOKEN - size)
            whole = (starts[:, None] + np.arange(size)).astype(np.int32).reshape(-1)
            tokens.frombytes(whole[begin - first * size : stop - first * size].tobytes())
            begin = stop
        return tokens

    def _latest(self, request: int, text: int, position: int) -> tuple[_Text, int]:
        """Returns the last text in which a position is what it is in this one, and up to where."""
        texts, limit = self._texts[request], MAX_TOKEN
        while text + 1 < len(texts) and position < texts[text + 1].num_kept:
            text += 1
            limit = min(limit, texts[text].num_kept)
        return texts[text], limit

    def _grow(self, text: _Text, num_blocks: int) -> None:
        """Gives a text new blocks, until it has so many."""
        lacking = num_blocks - len(text.blocks)
        if lacking > 0:
            text.blocks.extend(range(self._num_blocks, self._num_blocks + lacking))
            self._num_blocks += lacking
