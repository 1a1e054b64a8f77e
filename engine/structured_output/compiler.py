"""Compiles what a client asks for into a grammar, through xgrammar.

Source: xgrammar's `GrammarCompiler`; which of its compilers a kind goes to is vLLM's choice.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.sampling import StructuredOutputsParams
from engine.structured_output.vocabulary import TOKENIZER_FILE, load_vocabulary
from engine.structured_output.wishes import StructuredOutputKind

MAX_THREADS = 8

MAX_WHITESPACE = 64
"""Blanks in a row between JSON's tokens: enough for deep indentation, and they come to an end."""

NAMES: Mapping[StructuredOutputKind, str] = {
    "json": "the JSON schema",
    "json_object": "the JSON object",
    "regex": "the regex",
    "choice": "the choice",
    "grammar": "the grammar",
}
"""What each kind is called in messages."""

_PLACE_IN_SOURCE = re.compile(r"^(\[[\d:]+\] \S+:\d+: )+")
"""xgrammar's messages begin with the time and a line of its own source."""

_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


class GrammarError(ValueError):
    """A grammar that xgrammar refuses; the message is for who sent it."""


class GrammarCompiler:
    """Compiles grammars for one model.

    Args:
        model_directory: where its tokenizer lies; None for a runner without a model.
        vocab_size: of the model's logits.
        eos_token_ids: tokens that end its texts.
    """

    def __init__(
        self,
        model_directory: Path | None,
        *,
        vocab_size: int,
        eos_token_ids: Sequence[int],
    ) -> None:
        self.vocab_size = vocab_size
        self.eos_token_ids = tuple(eos_token_ids)
        self._model_directory = model_directory

    def complaint(self) -> str | None:
        """Returns why nothing can be compiled for this model; None if it can."""
        directory = self._model_directory
        if directory is None or not (directory / TOKENIZER_FILE).is_file():
            return f"structured output needs a tokenizer: this model has no {TOKENIZER_FILE}"
        if not self.eos_token_ids:
            return "structured output needs a token that ends a text: this model names none"
        if find_spec("xgrammar") is None:
            return "structured output needs xgrammar: pip install 'stepscope[engine]'"
        return None

    def load(self, kind: StructuredOutputKind) -> Any:
        """Returns xgrammar's compiler; the first call of a kind loads library and vocabulary."""
        return self._for_json if kind in ("json", "json_object") else self._for_text

    def compile(self, wanted: StructuredOutputsParams) -> Any:
        """Returns xgrammar's `CompiledGrammar`.

        Raises:
            GrammarError: the grammar is wrong.
        """
        compiler = self.load(wanted.kind)
        try:
            return _compile(compiler, wanted)
        except (RuntimeError, UnicodeError) as error:
            complaint = _PLACE_IN_SOURCE.sub("", str(error).strip())
            raise GrammarError(f"{NAMES[wanted.kind]} cannot be compiled: {complaint}") from None

    @cached_property
    def _for_json(self) -> Any:
        return self._make(for_json=True)

    @cached_property
    def _for_text(self) -> Any:
        return self._make(for_json=False)

    def _make(self, *, for_json: bool) -> Any:
        """Returns xgrammar's compiler, with the vocabulary that it is for."""
        from xgrammar import GrammarCompiler as XGrammarCompiler

        assert self._model_directory is not None
        vocabulary = load_vocabulary(
            self._model_directory,
            vocab_size=self.vocab_size,
            eos_token_ids=self.eos_token_ids,
            for_json=for_json,
        )
        num_threads = min(MAX_THREADS, max(1, len(os.sched_getaffinity(0)) // 2))
        return XGrammarCompiler(vocabulary, max_threads=num_threads, cache_enabled=False)


def _compile(compiler: Any, wanted: StructuredOutputsParams) -> Any:
    spec = wanted.spec
    match wanted.kind:
        case "json":
            return compiler.compile_json_schema(spec, max_whitespace_cnt=MAX_WHITESPACE)
        case "json_object":
            return compiler.compile_json_schema(
                '{"type": "object"}', max_whitespace_cnt=MAX_WHITESPACE
            )
        case "regex":
            return compiler.compile_regex(spec)
        case "choice":
            return compiler.compile_grammar(choices_as_ebnf(json.loads(spec)))
        case "grammar":
            is_ebnf = "::=" in spec
            return compiler.compile_grammar(spec) if is_ebnf else compiler.compile_lark(spec)


def choices_as_ebnf(choices: Sequence[str]) -> str:
    """Returns a grammar that allows exactly these texts."""
    return "root ::= " + " | ".join(f'"{_escaped(choice)}"' for choice in choices)


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in text)
