"""Structured output as the engine core uses it: grammars come, are followed, and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.request import Request
from engine.sampling import StructuredOutputsParams
from engine.scheduler import RequestOutput, Scheduler, SchedulerOutput
from engine.scheduler.output import StepOutputs
from engine.structured_output.bitmask import ALL_BITS, GrammarBitmask
from engine.structured_output.cache import CACHE_BYTES, GrammarCache
from engine.structured_output.compile_thread import COMPILE_SECONDS, Compilation, CompileThread
from engine.structured_output.compiler import GrammarCompiler
from engine.structured_output.grammar import RequestGrammar
from telemetry.vocabulary import FinishReason

NO_WAY_ON = (
    "the grammar wants a text that no token of this model's vocabulary can go on with: "
    "use characters that its tokenizer knows"
)
NOT_ALLOWED = "an output was chosen that the grammar does not allow"


class StructuredOutputs:
    """The grammars of an engine's requests.

    One thread drives it, the step loop's; compilations run beside that.

    Args:
        on_compiled: is called when a compilation has ended, in another thread, so that a driver
            that waits can go on.
    """

    def __init__(
        self,
        compiler: GrammarCompiler,
        *,
        on_compiled: Callable[[], None] = lambda: None,
        limit_seconds: float = COMPILE_SECONDS,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.on_compiled = on_compiled
        self.cache = GrammarCache(cache_bytes)
        self._compiler = compiler
        self.compile_thread = CompileThread(
            compiler, on_done=lambda: self.on_compiled(), limit_seconds=limit_seconds
        )
        self._waiting: dict[StructuredOutputsParams, dict[str, RequestGrammar]] = {}
        self._end_bits = _bits_of(compiler.eos_token_ids, compiler.vocab_size)
        self._all_tokens = _bits_of(range(compiler.vocab_size), compiler.vocab_size)
        """xgrammar sets the bits behind the last token too."""
        self._words = np.empty((0, len(self._end_bits)), np.int32)
        self._refused: dict[str, str] = {}
        """Requests whose grammar was wrong, and why; the scheduler ends them."""
        self._lost: dict[str, tuple[str, bool]] = {}
        """Requests that cannot follow theirs: why, and whether their client is to blame."""

    @classmethod
    def without_a_model(cls) -> StructuredOutputs:
        """Returns what has no tokens to constrain, and says so."""
        return cls(GrammarCompiler(None, vocab_size=0, eos_token_ids=()))

    # ----------------------------------------------------------------------------- getting them

    def complaint(self) -> str | None:
        """Returns why this engine has no structured output; None if it has."""
        return self._compiler.complaint()

    @property
    def is_compiling(self) -> bool:
        """Whether a request waits for its grammar."""
        return any(self._waiting.values())

    def grammar_for(
        self, request_id: str, wanted: StructuredOutputsParams
    ) -> tuple[RequestGrammar, bool]:
        """Returns a request's grammar, and whether it is there already or still to be compiled."""
        grammar = RequestGrammar(f"{wanted.kind}:{wanted.spec}")
        compiled = self.cache.get(wanted)
        if compiled is not None:
            grammar.begin(compiled)
            return grammar, True
        if wanted not in self._waiting:
            self._waiting[wanted] = {}
            self.compile_thread.submit(wanted)
        self._waiting[wanted][request_id] = grammar
        return grammar, False

    def take_compiled(self, wait_seconds: float = 0.0) -> dict[str, str | None]:
        """Returns the requests whose wait is over, each with what is wrong with its grammar.

        Args:
            wait_seconds: how long to wait for the first of them.
        """
        over: dict[str, str | None] = {}
        if self._waiting:
            for done in self.compile_thread.take_done(wait_seconds):
                over |= self._settle(done)
        return over

    def _settle(self, done: Compilation) -> dict[str, str | None]:
        """Hands a grammar to those that wait for it; some may be gone."""
        if done.grammar is not None:
            self.cache.put(done.wanted, done.grammar)
        waiting = self._waiting.pop(done.wanted, {})
        for request_id, grammar in waiting.items():
            if done.grammar is not None:
                grammar.begin(done.grammar)
            elif done.error is not None:
                self._refused[request_id] = done.error
        return dict.fromkeys(waiting, done.error)

    def forget(self, request: Request) -> None:
        """Forgets a request that has ended. A compilation that nobody waits for goes on."""
        wanted = request.sampling.structured_outputs
        if wanted is not None:
            self._refused.pop(request.request_id, None)
            self._waiting.get(wanted, {}).pop(request.request_id, None)

    # --------------------------------------------------------------------------- following them

    def fill(self, output: SchedulerOutput, requests: Mapping[str, Request]) -> GrammarBitmask:
        """Returns what grammars let through in a step; its words are good until the next call."""
        wanted = output.structured_output_rows
        began = time.monotonic_ns()
        words = self._rows(sum(wanted.values()))
        first_row: dict[str, int] = {}
        row = 0
        for name, num_rows in wanted.items():
            first_row[name] = row
            drafts = output.scheduled_spec_decode_tokens.get(name, ())
            _grammar_of(requests[name]).fill(words, row, drafts, self._end_bits)
            if not (words[row] & self._all_tokens).any():
                words[row] = ALL_BITS
                self._lost[name] = (NO_WAY_ON, True)
            row += num_rows
        return GrammarBitmask(words, first_row, time.monotonic_ns() - began)

    def take_in(
        self, output: SchedulerOutput, results: StepOutputs, requests: Mapping[str, Request]
    ) -> None:
        """Follows what the constrained requests of a step have been given.

        Also says why requests ended whose grammar was wrong: the scheduler knows only that it was.
        """
        for result in results if output.structured_output_rows else ():
            grammar = requests[result.request_id].grammar
            if isinstance(grammar, RequestGrammar) and not grammar.accept(result.new_token_ids):
                self._lost[result.request_id] = (NOT_ALLOWED, False)
        if self._refused:
            results.others = [self._explained(result) for result in results.others]

    def end_lost(self, scheduler: Scheduler) -> list[RequestOutput]:
        """Ends the requests that cannot follow their grammar any more; returns their ends."""
        lost, self._lost = self._lost, {}
        lost = {name: why for name, why in lost.items() if name in scheduler.requests}
        if lost:
            scheduler.finish_requests(lost, FinishReason.error)
        return [
            RequestOutput(
                request_id=name,
                finish_reason=FinishReason.error,
                error=error,
                blames_client=blames_client,
            )
            for name, (error, blames_client) in lost.items()
        ]

    def _explained(self, result: RequestOutput) -> RequestOutput:
        error = self._refused.get(result.request_id)
        if error is None or result.finish_reason is not FinishReason.error:
            return result
        return replace(result, error=error, blames_client=True)

    def _rows(self, num_rows: int) -> npt.NDArray[np.int32]:
        if len(self._words) < num_rows:
            width = len(self._end_bits)
            self._words = np.empty((max(num_rows, 2 * len(self._words)), width), np.int32)
        return self._words[:num_rows]


def _grammar_of(request: Request) -> RequestGrammar:
    assert isinstance(request.grammar, RequestGrammar)
    return request.grammar


def _bits_of(token_ids: Sequence[int], vocab_size: int) -> npt.NDArray[np.int32]:
    """Returns a row of bits, `[ceil(vocab_size / 32)]`, with those of some tokens set."""
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[[token for token in token_ids if token < vocab_size]] = 1
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32)
