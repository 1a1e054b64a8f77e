"""`docs/api.md` tells of every field that a request may have, and of no other."""

from __future__ import annotations

import re
from pathlib import Path

from engine.server import chat_request, completion_request, request_body
from engine.server.chat_request import ChatBody
from engine.server.completion_request import CompletionBody
from engine.server.request_body import GenerationBody

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_field_is_on_the_page() -> None:
    refused = [module.NEUTRAL_VALUES for module in (request_body, completion_request, chat_request)]
    names = {*CompletionBody.model_fields, *ChatBody.model_fields, *(n for r in refused for n in r)}
    missing = sorted(name for name in names if f"`{name}`" not in PAGE)
    assert missing == []


def test_every_field_of_the_table_is_one() -> None:
    table = PAGE[PAGE.index("## Fields of both") : PAGE.index("## Completions")]
    cells = "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    assert set(re.findall(r"`(\w+)`", cells)) == set(GenerationBody.model_fields)


def test_its_limits_are_the_programs() -> None:
    assert f"1 to {request_body.MAX_N}" in PAGE
