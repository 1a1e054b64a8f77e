"""Turns a conversation into the text that a model was trained to go on from.

Templates are Jinja and come with checkpoints, from whoever made them: they run in Jinja's sandbox,
and see the conversation and the names of special tokens only.

Source: `transformers`, chat templates (docs/source/en/chat_templating_writing.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(ValueError):
    """A template that cannot be used, or that refuses a conversation; the message says why."""


class ChatTemplate:
    """A compiled template.

    Raises:
        ChatTemplateError: it is no template.
    """

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ChatTemplateError(f"the chat template is broken: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        special_tokens: Mapping[str, str],
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns the conversation as text.

        Args:
            messages: each with `role` and `content`.
            special_tokens: texts of `bos_token` and others, for the template to spell.
            add_generation_prompt: end with the beginning of an answer.
            variables: what else the template is told; the names above are taken.

        Raises:
            ChatTemplateError: the template does not take these messages.
        """
        given = {
            **special_tokens,
            **(variables or {}),
            "messages": messages,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._template.render(given)
        except ChatTemplateError:
            raise
        except Exception as error:  # a template is a stranger's program: anything may come
            raise ChatTemplateError(
                f"the chat template does not take these messages: {error}"
            ) from error


class _Generation(Extension):
    """Lets `{% generation %}` blocks, which mark answers for training, through as they are."""

    tags = {"generation"}  # noqa: RUF012 (as Jinja declares it)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    raise ChatTemplateError(f"the chat template refuses these messages: {message}")


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, indent: int | None = None, **_: Any) -> str:
    """JSON without the escapes that Jinja's own filter makes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
