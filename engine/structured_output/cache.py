"""Compiled grammars that are kept for the next request with the same wish."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from engine.sampling import StructuredOutputsParams

CACHE_BYTES = 512 << 20
"""vLLM's `VLLM_XGRAMMAR_CACHE_MB`."""


class GrammarCache:
    """The grammars that were used last, as many as fit.

    A grammar larger than the whole cache is not kept.

    Args:
        max_bytes: memory of all of them, as xgrammar counts it.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._grammars: OrderedDict[StructuredOutputsParams, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._grammars)

    def get(self, wanted: StructuredOutputsParams) -> Any | None:
        """Returns a grammar, which is the last to go from now on; None if it is not there."""
        grammar = self._grammars.get(wanted)
        if grammar is not None:
            self._grammars.move_to_end(wanted)
        return grammar

    def put(self, wanted: StructuredOutputsParams, grammar: Any) -> None:
        """Takes in a grammar; those that were not used for longest make room."""
        self._remove(wanted)
        self._grammars[wanted] = grammar
        self.num_bytes += grammar.memory_size_bytes
        while self.num_bytes > self.max_bytes:
            self._remove(next(iter(self._grammars)))

    def _remove(self, wanted: StructuredOutputsParams) -> None:
        grammar = self._grammars.pop(wanted, None)
        if grammar is not None:
            self.num_bytes -= grammar.memory_size_bytes
