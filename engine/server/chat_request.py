"""Reads the body of `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.sampling import SamplingParams
from engine.server.api_error import bad_request
from engine.server.request_body import GenerationBody, read_body

ROLES = ("system", "developer", "user", "assistant", "tool")

TEMPLATE_FIELDS = {"messages", "add_generation_prompt"}
"""What templates are told anyway."""

MESSAGE_FIELDS = {"role", "content", "name", "refusal", "tool_calls", "tool_call_id"}

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "tools": ([], None),
    "tool_choice": ("none", "auto", None),
    "parallel_tool_calls": (True, False, None),
    "modalities": (["text"], None),
    "store": (False, None),
    "metadata": ({}, None),
    "service_tier": ("auto", "default", None),
}
"""Fields of chats that are known but not built; see `request_body`."""


class ChatBody(GenerationBody):
    """The JSON of a request. `messages` come in several shapes, read by `_read_messages`."""

    messages: Any = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None

    def chat_sampling(self, max_tokens: int) -> SamplingParams:
        """Returns how the engine is to choose tokens; raises as `sampling` does."""
        num_logprobs = self.top_logprobs or 0
        if num_logprobs and not self.logprobs:
            raise bad_request("top_logprobs is only allowed with logprobs: true", "top_logprobs")
        if num_logprobs < 0:
            raise bad_request(
                f"top_logprobs is {num_logprobs}: it must be 0 or more", "top_logprobs"
            )
        return self.sampling(max_tokens, num_logprobs if self.logprobs else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request that makes sense in itself.

    `messages` are as templates take them: `content` is one text. `max_tokens` is None where the
    client leaves it to the room that there is.
    """

    body: ChatBody
    messages: Sequence[dict[str, Any]]
    num_choices: int
    max_tokens: int | None

    @property
    def model(self) -> str | None:
        """The model that the client names."""
        return self.body.model


def parse_chat_request(raw: bytes) -> ChatRequest:
    """Returns what the client asks for.

    Raises:
        ApiError: 400, with the field that is wrong and what would be right.
    """
    body = read_body(raw, ChatBody, NEUTRAL_VALUES)
    taken = TEMPLATE_FIELDS & (body.chat_template_kwargs or {}).keys()
    if taken:
        raise bad_request(
            f"chat_template_kwargs has {min(taken)}, which is a field of its own: leave it out",
            "chat_template_kwargs",
        )
    given = body.max_completion_tokens
    max_tokens = body.max_tokens if given is None else given
    if max_tokens is not None:
        body.chat_sampling(max_tokens)  # what is out of range is told before a prompt is made
    return ChatRequest(
        body=body,
        messages=_read_messages(body.messages),
        num_choices=body.num_choices,
        max_tokens=max_tokens,
    )


def _read_messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a list of at least one message", "messages")
    return [_read_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _read_message(message: Any, place: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise bad_request(f"{place} is no object: a message has a role and content", place)
    unknown = sorted(message.keys() - MESSAGE_FIELDS)
    if unknown:
        raise bad_request(f"{place}.{unknown[0]} is not a field of messages: leave it out", place)
    role = message.get("role")
    if role not in ROLES:
        raise bad_request(f"{place}.role is {role!r}: it must be one of {', '.join(ROLES)}", place)
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""
    return {**message, "content": _read_content(content, f"{place}.content")}


def _read_content(content: Any, place: str) -> str:
    """Returns a message's text, from a text or a list of parts, which a line break separates."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_request(f"{place} must be a text or a list of parts", place)
    return "\n".join(_read_part(part, f"{place}[{i}]") for i, part in enumerate(content))


def _read_part(part: Any, place: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        raise bad_request(f"{place} is of type {kind!r}: only text parts can be read", place)
    text = part.get("text")
    if not isinstance(text, str):
        raise bad_request(f"{place}.text must be a text", place)
    return text
