"""Answers `/v1/completions`: from a parsed request to JSON or a stream of events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from engine.server.api_error import bad_request
from engine.server.completion_request import CompletionRequest
from engine.server.engine_client import EngineClient
from engine.server.generation import Caller, Generation, Piece, Prompt
from engine.server.logprobs import completion_logprobs
from engine.server.messages import EngineReady
from engine.server.sampling_limits import check_limits
from engine.text.tokenizer import Tokenizer


class Completion:
    """One text completion; making it checks it.

    Raises:
        ApiError: it cannot be served; the engine has been given nothing.
    """

    def __init__(self, client: EngineClient, request: CompletionRequest, caller: Caller) -> None:
        self._request = request
        self._model = caller.model_name(client.settings.model_name)
        self.is_streamed = request.stream
        self._tokenizer = client.tokenizer
        ready = client.check_ready()
        check_limits(client, request.sampling, "logprobs")
        self.generation = Generation(
            client,
            [_read_prompt(prompt, ready, client.tokenizer) for prompt in request.prompts],
            request.sampling,
            caller,
            num_choices=request.num_choices,
            priority=request.priority,
            prompt_field="prompt",
        )

    async def as_object(self) -> dict[str, Any]:
        """Returns the whole answer once it is complete."""
        choices = [self._choice(piece) for piece in await self.generation.whole()]
        return {**self._envelope(), "choices": choices, "usage": self.generation.usage()}

    async def as_chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the objects of a streamed answer, the usage last where it was asked for."""
        envelope = self._envelope()
        if self._request.include_usage:
            envelope["usage"] = None
        async for piece in self.generation.pieces():
            yield {**envelope, "choices": [self._choice(piece)]}
        if self._request.include_usage:
            yield {**envelope, "choices": [], "usage": self.generation.usage()}

    def _envelope(self) -> dict[str, Any]:
        return {
            "id": f"cmpl-{self.generation.request_id}",
            "object": "text_completion",
            "created": self.generation.created,
            "model": self._model,
        }

    def _choice(self, piece: Piece) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": piece.index,
            "text": piece.text,
            "logprobs": completion_logprobs(piece, self._tokenizer),
            "finish_reason": piece.finish_reason,
        }
        if self._request.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return choice


def _read_prompt(
    prompt: str | list[int], ready: EngineReady, tokenizer: Tokenizer | None
) -> Prompt:
    """Returns a prompt's tokens, which a text is turned into."""
    if not isinstance(prompt, str):
        if min(prompt) < 0 or max(prompt) >= ready.vocab_size:
            raise bad_request(
                f"a token id of the prompt is outside 0 to {ready.vocab_size - 1}, "
                "the model's vocabulary",
                "prompt",
            )
        return Prompt(prompt)
    if tokenizer is None:
        raise bad_request(
            "this model has no tokenizer.json: send the prompt as token ids", "prompt"
        )
    token_ids = tokenizer.encode(prompt)
    if not token_ids:
        raise bad_request("prompt has no tokens: send at least one", "prompt")
    return Prompt(token_ids, time.monotonic_ns())
