"""Answers `/v1/chat/completions`: the same generation as a completion's, in a chat's clothes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from engine.admission import room_for_output
from engine.server.api_error import bad_request
from engine.server.chat_request import ChatRequest
from engine.server.engine_client import EngineClient
from engine.server.generation import Caller, Generation, Piece, Prompt
from engine.server.logprobs import chat_logprobs
from engine.server.sampling_limits import check_limits
from engine.text.chat_template import ChatTemplate, ChatTemplateError


class ChatCompletion:
    """One answer to a conversation; making it checks it.

    Args:
        template: the one to use; None is the model's own.

    Raises:
        ApiError: it cannot be served; the engine has been given nothing.
    """

    def __init__(
        self,
        client: EngineClient,
        request: ChatRequest,
        caller: Caller,
        template: ChatTemplate | None = None,
    ) -> None:
        body = request.body
        self._body = body
        self._num_choices = request.num_choices
        self._model = caller.model_name(client.settings.model_name)
        self.is_streamed = body.stream
        self._tokenizer = client.tokenizer
        config = client.check_ready().config
        prompt = _read_prompt(client, request, template)
        max_tokens = request.max_tokens
        if max_tokens is None:
            max_tokens = room_for_output(config, len(prompt.token_ids))
        sampling = body.chat_sampling(max_tokens)
        check_limits(client, sampling, "top_logprobs")
        self.generation = Generation(
            client,
            [prompt],
            sampling,
            caller,
            num_choices=request.num_choices,
            priority=body.priority,
            prompt_field="messages",
        )

    async def as_object(self) -> dict[str, Any]:
        """Returns the whole answer once it is complete."""
        choices = [
            self._choice(
                piece, message={"role": "assistant", "content": piece.text, "refusal": None}
            )
            for piece in await self.generation.whole()
        ]
        return {
            **self._envelope("chat.completion"),
            "choices": choices,
            "usage": self.generation.usage(),
        }

    async def as_chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the objects of a streamed answer: who speaks, what is said, why it ended."""
        envelope = self._envelope("chat.completion.chunk")
        if self._body.include_usage:
            envelope["usage"] = None
        for index in range(self._num_choices):
            first = Piece(index, "", (), None)
            yield {
                **envelope,
                "choices": [self._choice(first, delta={"role": "assistant", "content": ""})],
            }
        async for piece in self.generation.pieces():
            delta = {"content": piece.text} if piece.text or not piece.finish_reason else {}
            yield {**envelope, "choices": [self._choice(piece, delta=delta)]}
        if self._body.include_usage:
            yield {**envelope, "choices": [], "usage": self.generation.usage()}

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.generation.request_id}",
            "object": kind,
            "created": self.generation.created,
            "model": self._model,
        }

    def _choice(self, piece: Piece, **said: dict[str, Any]) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": piece.index,
            **said,
            "logprobs": chat_logprobs(piece, self._tokenizer),
            "finish_reason": piece.finish_reason,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return choice


def _read_prompt(
    client: EngineClient, request: ChatRequest, template: ChatTemplate | None
) -> Prompt:
    """Returns the conversation's tokens, as the template spells it."""
    tokenizer = client.tokenizer
    if tokenizer is None:
        raise bad_request("this model has no tokenizer.json: it cannot chat", "messages")
    try:
        template = template or client.chat_template
        if template is None:
            raise bad_request(
                f"model {client.settings.model_name!r} has no chat template: start the server with "
                "--chat-template FILE, or use /v1/completions",
                "messages",
            )
        text = template.render(
            request.messages,
            special_tokens=tokenizer.special_tokens,
            add_generation_prompt=request.body.add_generation_prompt,
            variables=request.body.chat_template_kwargs,
        )
    except ChatTemplateError as error:
        raise bad_request(str(error), "messages") from None
    token_ids = tokenizer.encode_as_it_is(text)
    if not token_ids:
        raise bad_request("the messages give no tokens: say something", "messages")
    return Prompt(token_ids, time.monotonic_ns())
