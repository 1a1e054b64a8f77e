"""Takes a list of requests through an engine core to their ends, with nobody waiting for pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.core import EngineCore, NewRequest
from engine.offline.results import Completion
from engine.scheduler import RequestOutput, SchedulerOutput
from engine.scheduler.output import TokenLogprobs
from engine.text.completion_text import CompletionText
from engine.text.tokenizer import Tokenizer
from telemetry.vocabulary import FinishReason

GRAMMAR_WAIT_SECONDS = 0.05
"""How long to wait for a grammar where nobody else can run, before looking again."""


@dataclass(slots=True)
class Choice:
    """One request on its way, and what it has said. Times are ns on the run's clock."""

    new: NewRequest
    text: CompletionText
    pieces: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_preemptions: int = 0
    first_token_ts: int | None = None
    ended_ts: int | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None

    def completion(self, *, has_text: bool) -> Completion:
        """Returns what it has said, once it has ended."""
        assert self.finish_reason is not None
        return Completion(
            text="".join(self.pieces) if has_text else None,
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish_reason,
            logprobs=None if self.new.sampling.logprobs is None else self.logprobs,
            error=self.error,
        )


class BatchRun:
    """Requests that are run together, until all have ended.

    Args:
        requests: asked for one by one, each when those before it have been handed in.
        moved: called with the number of new tokens, and of requests that have ended, of each step.
    """

    def __init__(
        self,
        core: EngineCore,
        requests: Iterable[NewRequest],
        tokenizer: Tokenizer | None,
        clock: Callable[[], int],
        moved: Callable[[int, int], None],
    ) -> None:
        self._core = core
        self._requests = requests
        self._tokenizer = tokenizer
        self._clock = clock
        self._moved = moved
        self.choices: dict[str, Choice] = {}
        self._num_open = 0

    def run(self) -> None:
        """Runs all to their ends; whatever stops that ends those that are left.

        Raises:
            ValueError: one can never fit, or `requests` says so; none has been started.
            RuntimeError: the engine comes to a standstill (only with `allow_oversize`).
        """
        try:
            self._hand_in()
            while self._num_open:
                self._step()
        except BaseException:
            self._core.abort(list(self.choices), FinishReason.abort_api)
            self._core.scheduler.journal.flush()
            raise

    def _hand_in(self) -> None:
        for new in self._requests:
            refusal = self._core.add_request(new)
            if refusal is not None:
                raise ValueError(refusal.error)
            text = CompletionText(self._tokenizer, new.sampling)
            self.choices[new.request_id] = Choice(new, text)
            self._num_open += 1

    def _step(self) -> None:
        try:
            output, results = self._core.step()
        except Exception as error:
            self._core.fail_all(f"{type(error).__name__}: {error}")
            raise
        for name in output.preempted_req_ids & self.choices.keys():
            self.choices[name].num_preemptions += 1
        num_open = self._num_open
        for result in results:
            self._take_in(result)
        num_tokens = sum(len(result.new_token_ids) for result in results)
        self._moved(num_tokens, num_open - self._num_open)
        if not output.total_num_scheduled_tokens:
            self._wait(output, has_results=len(results) > 0)

    def _wait(self, output: SchedulerOutput, *, has_results: bool) -> None:
        """Waits for what an empty step waits for.

        Raises:
            RuntimeError: for nothing that will ever come.
        """
        core = self._core
        if core.structured_outputs.is_compiling:
            core.take_compiled_grammars(GRAMMAR_WAIT_SECONDS)
        elif core.waits_for_transfers:
            core.wait_for_transfers()
        elif not (has_results or core.has_received_kv):
            raise RuntimeError("requests wait for more KV blocks than there are: none can run")

    def _take_in(self, result: RequestOutput) -> None:
        choice = self.choices[result.request_id]
        new = choice.text.push(result.new_token_ids, is_last=result.finish_reason is not None)
        num_used = len(new.starts)
        if num_used and choice.first_token_ts is None:
            choice.first_token_ts = self._clock()
        choice.pieces.append(new.text)
        choice.token_ids += result.new_token_ids[:num_used]
        choice.logprobs += result.logprobs[:num_used]
        reason = result.finish_reason
        if choice.text.stopped:
            if reason is None:  # the engine does not know text: it has to be told
                self._core.abort([result.request_id], FinishReason.stop)
            reason = FinishReason.stop
        if reason is not None:
            choice.finish_reason, choice.error = reason, result.error
            choice.ended_ts = self._clock()
            self._num_open -= 1
