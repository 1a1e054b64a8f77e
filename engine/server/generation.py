"""One API request on its way through the engine, whatever its answer looks like.

Each choice of the answer, so many of each prompt, is one request to the engine. When the client
goes away, or one of them fails, what is left is aborted. How the choices become JSON is
`completions`' and `chat`'s business.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

from engine.admission import complaint_about
from engine.lora.store import AdapterVersion
from engine.sampling import SamplingParams
from engine.scheduler.output import RequestOutput, TokenLogprobs
from engine.server.api_error import ApiError, bad_request
from engine.server.engine_client import EngineClient
from engine.server.messages import AddRequest
from engine.server.result_box import ResultBox
from engine.server.trace_context import TraceContext
from engine.text.completion_text import CompletionText
from telemetry.vocabulary import FinishReason

FINISH_NAMES = {
    FinishReason.stop: "stop",
    FinishReason.length: "length",
    FinishReason.abort_client: "abort",
    FinishReason.abort_api: "abort",
    FinishReason.abort_timeout: "abort",
}
"""Finish reasons as the API spells them; the others become errors."""

FAILURES = (FinishReason.error, FinishReason.refused)

RETRY_SECONDS = 1
"""When somebody for whom there is no room may ask again: requests end all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and which adapter, besides what is asked. `received_ns` is monotonic."""

    request_id: str
    trace: TraceContext | None
    received_ns: int
    adapter: AdapterVersion | None = None

    def model_name(self, base: str) -> str:
        """Returns the name of the model that answers, as the API spells it."""
        return base if self.adapter is None else self.adapter.module.name


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's tokens, and when they were made of a text (monotonic); None came as tokens."""

    token_ids: list[int]
    tokenized_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """New text and tokens of a choice, and its end if it has come."""

    index: int
    text: str
    token_ids: Sequence[int]
    finish_reason: str | None
    logprobs: Sequence[TokenLogprobs] = ()
    """One for each token, where they are wanted."""
    starts: Sequence[int] = ()
    """Where each token begins in the choice's text, in characters."""


class Generation:
    """The prompts of one API request, and what comes of them.

    Making one checks it. Use it as a context manager: entering hands its requests to the engine,
    leaving aborts what has not ended, as the client's doing unless the engine failed.

    Args:
        num_choices: answers to each prompt; with a seed, each has one of its own, counted up.
        prompt_field: the request's field that prompts come from, for errors.

    Raises:
        ApiError: it cannot be served, or, on entering, not now; the engine has been given nothing.
    """

    def __init__(
        self,
        client: EngineClient,
        prompts: Sequence[Prompt],
        sampling: SamplingParams,
        caller: Caller,
        *,
        num_choices: int,
        priority: int,
        prompt_field: str,
    ) -> None:
        self._client = client
        self._abort_reason = FinishReason.abort_client
        self.created = int(time.time())
        self.request_id = caller.request_id
        self._adds = _engine_requests(prompts, sampling, num_choices, caller, priority)
        self._refuse_what_never_fits(prompt_field)
        self.num_prompt_tokens = sum(len(prompt.token_ids) for prompt in prompts)
        self.num_output_tokens = 0
        self._box = ResultBox(caller.request_id)
        self._index = {add.request_id: index for index, add in enumerate(self._adds)}
        self._open = set(self._index)
        self._texts = [CompletionText(client.tokenizer, sampling) for _ in self._adds]

    def __enter__(self) -> Generation:
        self._check_ids()
        self._check_queue()
        for add in self._adds:
            self._client.submit(add, self._box)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for request_id in self._index:
            is_open = request_id in self._open
            self._client.close(request_id, self._abort_reason if is_open else None)

    # ------------------------------------------------------------------------------------ going in

    def _refuse_what_never_fits(self, prompt_field: str) -> None:
        """Raises for a prompt that never fits; the engine is told of it, for the record."""
        config = self._client.check_ready().config
        for add in self._adds:
            complaint = complaint_about(config, len(add.prompt_token_ids), add.sampling.max_tokens)
            if complaint is not None:
                self._client.report_refusal(add)
                raise bad_request(complaint, prompt_field)

    def _check_ids(self) -> None:
        for request_id in self._index:
            if self._client.is_open(request_id):
                raise ApiError(
                    409, f"request id {request_id!r} is under way: choose another X-Request-Id"
                )

    def _check_queue(self) -> None:
        """Raises where too many are under way; the engine is told of it, for the record."""
        rejection = self._client.rejection_of(len(self._adds))
        if rejection is None:
            return
        for add in self._adds:
            self._client.report_refusal(add, rejection.why)
        if rejection.is_final:
            raise bad_request(rejection.why)
        raise ApiError(503, rejection.why, code="queue_full", retry_after_seconds=RETRY_SECONDS)

    # ---------------------------------------------------------------------------------- coming out

    async def begun(self) -> None:
        """Waits until an output begins, where only that shows whether its grammar is right.

        Raises:
            ApiError: it is wrong.
        """
        if self._adds[0].sampling.structured_outputs is None:
            return
        for result in await self._box.peek():
            if result.finish_reason in FAILURES:
                self._piece(result)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yields what the choices say, as it comes, until all have ended.

        Raises:
            ApiError: the engine failed; the rest is aborted.
        """
        while self._open:
            for result in await self._box.take():
                if result.request_id in self._open:
                    yield self._piece(result)

    async def whole(self) -> list[Piece]:
        """Returns what each choice has said in all, once all have ended; raises as `pieces` do."""
        said: list[list[Piece]] = [[] for _ in self._index]
        async for piece in self.pieces():
            said[piece.index].append(piece)
        return [_joined(pieces) for pieces in said]

    def _piece(self, result: RequestOutput) -> Piece:
        reason = result.finish_reason
        if reason in FAILURES:
            self._open.discard(result.request_id)
            self._abort_reason = FinishReason.abort_api
            status = 400 if result.blames_client or reason is FinishReason.refused else 500
            raise ApiError(status, result.error or "the engine gave no reason")
        index = self._index[result.request_id]
        new = self._texts[index].push(result.new_token_ids, is_last=reason is not None)
        num_used = len(new.starts)
        self.num_output_tokens += num_used
        if self._texts[index].stopped:
            if reason is None:  # the engine does not know text: it has to be told
                self._client.close(result.request_id, FinishReason.stop)
            reason = FinishReason.stop
        if reason is not None:
            self._open.discard(result.request_id)
        finish_reason = None if reason is None else FINISH_NAMES[reason]
        return Piece(
            index,
            new.text,
            result.new_token_ids[:num_used],
            finish_reason,
            result.logprobs[:num_used],
            new.starts,
        )

    def usage(self) -> dict[str, int]:
        """Returns the tokens that went in and have come out so far."""
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_output_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_output_tokens,
        }


def _engine_requests(
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
    num_choices: int,
    caller: Caller,
    priority: int,
) -> list[AddRequest]:
    """Returns what the engine is asked: a request for each choice, prompt by prompt."""
    name, trace = caller.request_id, caller.trace
    samplings = [_for_choice(sampling, choice) for choice in range(num_choices)]
    choices = list(product(prompts, samplings))
    return [
        AddRequest(
            request_id=name if len(choices) == 1 else f"{name}-{index}",
            prompt_token_ids=prompt.token_ids,
            sampling=sampling,
            priority=priority,
            adapter=None if caller.adapter is None else caller.adapter.adapter,
            received_ns=caller.received_ns,
            tokenized_ns=prompt.tokenized_ns,
            trace_id=None if trace is None else trace.trace_id,
            parent_span_id=None if trace is None else trace.parent_span_id,
            trace_sampled=None if trace is None else trace.is_sampled,
        )
        for index, (prompt, sampling) in enumerate(choices)
    ]


def _for_choice(sampling: SamplingParams, choice: int) -> SamplingParams:
    """Returns how one of a prompt's choices is sampled: its seed is counted up, as vLLM does."""
    if sampling.seed is None or not choice:
        return sampling
    return replace(sampling, seed=sampling.seed + choice)


def _joined(pieces: Sequence[Piece]) -> Piece:
    """Returns a choice's pieces as one."""
    return Piece(
        pieces[0].index,
        "".join(piece.text for piece in pieces),
        list(chain.from_iterable(piece.token_ids for piece in pieces)),
        pieces[-1].finish_reason,
        list(chain.from_iterable(piece.logprobs for piece in pieces)),
        list(chain.from_iterable(piece.starts for piece in pieces)),
    )
