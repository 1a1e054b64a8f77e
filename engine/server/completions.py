"""Answers `/v1/completions`: from a parsed request to JSON or a stream of events.

A prompt is one request to the engine and one choice of the answer. When the client goes away, or
one prompt fails, what is left is aborted.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.admission import complaint_about
from engine.scheduler.output import RequestOutput
from engine.server.api_error import ApiError, bad_request
from engine.server.completion_request import CompletionRequest
from engine.server.completion_text import CompletionText
from engine.server.detokenizer import Tokenizer
from engine.server.engine_client import EngineClient
from engine.server.messages import AddRequest, EngineReady
from engine.server.result_box import ResultBox
from engine.server.trace_context import TraceContext
from telemetry.vocabulary import FinishReason

FINISH_NAMES = {
    FinishReason.stop: "stop",
    FinishReason.length: "length",
    FinishReason.abort_client: "abort",
    FinishReason.abort_api: "abort",
    FinishReason.abort_timeout: "abort",
}
"""Finish reasons as the API spells them; the others become errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, besides what is asked. `received_ns` is monotonic."""

    request_id: str
    trace: TraceContext | None
    received_ns: int


@dataclass(frozen=True, slots=True)
class Piece:
    """New text and tokens of a choice, and its end if it has come."""

    index: int
    text: str
    token_ids: Sequence[int]
    finish_reason: str | None


class Completion:
    """One API request on its way through the engine.

    Making one checks it. Use it as a context manager: entering hands its requests to the engine,
    leaving aborts what has not ended, as the client's doing unless the engine failed.

    Raises:
        ApiError: it cannot be served; the engine has been given nothing.
    """

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer | None,
        request: CompletionRequest,
        caller: Caller,
    ) -> None:
        self._client = client
        self._request = request
        self._caller = caller
        self._created = int(time.time())
        self._abort_reason = FinishReason.abort_client
        adds = self._prepare(client.check_ready(), tokenizer)
        self.num_prompt_tokens = sum(len(add.prompt_token_ids) for add in adds)
        self.num_output_tokens = 0
        self._box = ResultBox()
        self._index = {add.request_id: index for index, add in enumerate(adds)}
        self._open = set(self._index)
        self._check_ids()
        self._texts = [CompletionText(tokenizer, request.sampling) for _ in adds]
        self._adds = adds

    def __enter__(self) -> Completion:
        self._check_ids()
        for add in self._adds:
            self._client.submit(add, self._box)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for request_id in self._index:
            is_open = request_id in self._open
            self._client.close(request_id, self._abort_reason if is_open else None)

    # ------------------------------------------------------------------------------------ going in

    def _prepare(self, ready: EngineReady, tokenizer: Tokenizer | None) -> list[AddRequest]:
        """Returns the engine's requests; none is handed in unless all of them may be."""
        prompts = [self._token_ids(prompt, ready, tokenizer) for prompt in self._request.prompts]
        tokenized_ns = time.monotonic_ns()
        adds = [self._add(i, prompt, tokenized_ns) for i, prompt in enumerate(prompts)]
        for add in adds:
            complaint = complaint_about(
                ready.config, len(add.prompt_token_ids), add.sampling.max_tokens
            )
            if complaint is not None:
                self._client.report_refusal(add)
                raise bad_request(complaint, "prompt")
        return adds

    def _check_ids(self) -> None:
        for request_id in self._index:
            if self._client.is_open(request_id):
                raise ApiError(
                    409, f"request id {request_id!r} is under way: choose another X-Request-Id"
                )

    def _token_ids(
        self, prompt: str | list[int], ready: EngineReady, tokenizer: Tokenizer | None
    ) -> list[int]:
        if isinstance(prompt, str):
            if tokenizer is None:
                raise bad_request(
                    "this model has no tokenizer.json: send the prompt as token ids", "prompt"
                )
            prompt = tokenizer.encode(prompt)
            if not prompt:
                raise bad_request("prompt has no tokens: send at least one", "prompt")
        elif min(prompt) < 0 or max(prompt) >= ready.vocab_size:
            raise bad_request(
                f"a token id of the prompt is outside 0 to {ready.vocab_size - 1}, "
                "the model's vocabulary",
                "prompt",
            )
        return prompt

    def _add(self, index: int, token_ids: list[int], tokenized_ns: int) -> AddRequest:
        caller, request = self._caller, self._request
        name = caller.request_id
        return AddRequest(
            request_id=name if len(request.prompts) == 1 else f"{name}-{index}",
            prompt_token_ids=token_ids,
            sampling=request.sampling,
            priority=request.priority,
            received_ns=caller.received_ns,
            tokenized_ns=tokenized_ns if isinstance(request.prompts[index], str) else None,
            trace_id=None if caller.trace is None else caller.trace.trace_id,
            parent_span_id=None if caller.trace is None else caller.trace.parent_span_id,
            trace_sampled=None if caller.trace is None else caller.trace.is_sampled,
        )

    # ---------------------------------------------------------------------------------- coming out

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yields what the choices say, as it comes, until all have ended.

        Raises:
            ApiError: the engine failed; the rest is aborted.
        """
        while self._open:
            for result in await self._box.take():
                if result.request_id in self._open:
                    yield self._piece(result)

    def _piece(self, result: RequestOutput) -> Piece:
        reason = result.finish_reason
        if reason in (FinishReason.error, FinishReason.refused):
            self._open.discard(result.request_id)
            self._abort_reason = FinishReason.abort_api
            raise ApiError(500, result.error or "the engine gave no reason")
        index = self._index[result.request_id]
        text, num_used = self._texts[index].push(result.new_token_ids, is_last=reason is not None)
        self.num_output_tokens += num_used
        if self._texts[index].stopped:
            if reason is None:  # the engine does not know text: it has to be told
                self._client.close(result.request_id, FinishReason.stop)
            reason = FinishReason.stop
        if reason is not None:
            self._open.discard(result.request_id)
        finish_reason = None if reason is None else FINISH_NAMES[reason]
        return Piece(index, text, result.new_token_ids[:num_used], finish_reason)

    # ------------------------------------------------------------------------------------ the JSON

    async def as_object(self, model: str) -> dict[str, Any]:
        """Returns the whole answer once it is complete."""
        texts = [""] * len(self._index)
        token_ids: list[list[int]] = [[] for _ in self._index]
        reasons: list[str | None] = [None] * len(self._index)
        async for piece in self.pieces():
            texts[piece.index] += piece.text
            token_ids[piece.index] += piece.token_ids
            reasons[piece.index] = piece.finish_reason
        choices = [
            self._choice(Piece(i, texts[i], token_ids[i], reasons[i])) for i in self._index.values()
        ]
        return {**self._envelope(model), "choices": choices, "usage": self._usage()}

    async def as_chunks(self, model: str) -> AsyncIterator[dict[str, Any]]:
        """Yields the objects of a streamed answer, the usage last where it was asked for."""
        envelope = self._envelope(model)
        if self._request.include_usage:
            envelope["usage"] = None
        async for piece in self.pieces():
            yield {**envelope, "choices": [self._choice(piece)]}
        if self._request.include_usage:
            yield {**envelope, "choices": [], "usage": self._usage()}

    def _envelope(self, model: str) -> dict[str, Any]:
        return {
            "id": f"cmpl-{self._caller.request_id}",
            "object": "text_completion",
            "created": self._created,
            "model": model,
        }

    def _choice(self, piece: Piece) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": piece.index,
            "text": piece.text,
            "logprobs": None,
            "finish_reason": piece.finish_reason,
        }
        if self._request.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return choice

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_output_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_output_tokens,
        }
