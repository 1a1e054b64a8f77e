"""Structured output through the API: OpenAI's client unmodified, and what is refused."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Literal

import httpx2
import openai
import pytest
from pydantic import BaseModel, Field

from engine.identity import LifeEvents
from engine.server.engine_process import StepLoop
from engine.server.inbox import Inbox
from engine.server.messages import GrammarCompiled
from engine.settings import EngineSettings
from telemetry.recorder import NullRecorder
from telemetry.records import RunClock
from tests.engine.server.in_process import make_core
from tests.engine.server.server_process import SECONDS, ServerProcess

ASK: dict[str, Any] = {
    "model": "tiny-llama",
    "messages": [{"role": "user", "content": "Where?"}],
    "max_completion_tokens": 600,
    "seed": 1,
}
COMPLETE: dict[str, Any] = {"model": "tiny-llama", "prompt": "Say ", "max_tokens": 40}


class Place(BaseModel):
    """What the model is to say."""

    x: int = Field(ge=0, le=9)
    colour: Literal["red", "blue"]
    flags: list[bool] = Field(max_length=2)


SCHEMA = {"name": "place", "strict": True, "schema": Place.model_json_schema()}


@pytest.fixture
def client(tiny_server: ServerProcess) -> Iterator[openai.OpenAI]:
    http = httpx2.Client(trust_env=False)
    url = f"{tiny_server.url}/v1"
    with openai.OpenAI(
        base_url=url, api_key="none", timeout=SECONDS, max_retries=0, http_client=http
    ) as client:
        yield client


def test_a_chat_is_parsed_into_a_model_of_pydantic(client: openai.OpenAI) -> None:
    choice = client.chat.completions.parse(**ASK, response_format=Place).choices[0]
    assert isinstance(choice.message.parsed, Place)


def test_a_streamed_chat_is_parsed_too(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**ASK, response_format=Place) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Place)


def test_every_choice_keeps_to_the_schema(client: openai.OpenAI) -> None:
    format_ = {"type": "json_schema", "json_schema": SCHEMA}
    answer = client.chat.completions.create(**ASK, n=2, response_format=format_)
    for choice in answer.choices:
        Place.model_validate_json(choice.message.content or "")


def test_any_object_will_do(client: openai.OpenAI) -> None:
    ask = {**ASK, "max_completion_tokens": 12}
    answer = client.chat.completions.create(**ask, response_format={"type": "json_object"})
    assert (answer.choices[0].message.content or "").lstrip().startswith("{")


@pytest.mark.parametrize(
    ("wish", "pattern"),
    [
        ({"regex": r"[a-f]{3}\d"}, r"[a-f]{3}\d"),
        ({"choice": ["yes", "no", 'a "b"']}, r'yes|no|a "b"'),
        ({"grammar": 'root ::= "<" [0-9]+ ">"'}, r"<\d+>"),
        ({"grammar": 'start: "<" /[0-9]+/ ">"'}, r"<\d+>"),
        ({"json": {"enum": [1, None]}}, r"1|null"),
        ({"json": '{"const": "x"}'}, r'"x"'),
    ],
)
def test_what_vllm_takes_is_taken(
    wish: dict[str, Any], pattern: str, client: openai.OpenAI
) -> None:
    answer = client.completions.create(**COMPLETE, seed=3, extra_body={"structured_outputs": wish})
    assert re.fullmatch(pattern, answer.choices[0].text)


def schema(given: Any) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": given}}
    }


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "format": ({"response_format": {"type": "xml"}}, "response_format.type"),
    "format text": ({"response_format": "json"}, "response_format.type"),
    "no schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        "response_format.json_schema",
    ),
    "extra field": (
        {"response_format": {"type": "json_object", "schema": {}}},
        "response_format.schema",
    ),
    "type": (schema({"type": "text"}), "response_format.json_schema.schema"),
    "not enforced": (schema({"not": {}}), "response_format.json_schema.schema"),
    "no object": (schema([]), "response_format.json_schema.schema"),
    "none": ({"structured_outputs": {}}, "structured_outputs"),
    "two": ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    "list": ({"structured_outputs": ["a"]}, "structured_outputs"),
    "unknown": ({"structured_outputs": {"yaml": "a"}}, "structured_outputs.yaml"),
    "no choice": ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    "choices": ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice"),
    "regex": ({"structured_outputs": {"regex": 7}}, "structured_outputs.regex"),
    "empty": ({"structured_outputs": {"grammar": ""}}, "structured_outputs.grammar"),
    "json text": ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
    "object": ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"),
    "large": ({"structured_outputs": {"regex": "a" * 2_000_000}}, "structured_outputs.regex"),
    "both": (
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
    ),
    "min_tokens": ({"structured_outputs": {"regex": "a"}, "min_tokens": 2}, "min_tokens"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_seen_to_be_wrong_is_refused_and_named(
    name: str, tiny_server: ServerProcess
) -> None:
    fields, param = REFUSED[name]
    with tiny_server.client() as http:
        answer = http.post("/v1/completions", json={**COMPLETE, **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "wish", [{"regex": "("}, {"grammar": "root ::= b"}, {"json": {"$ref": "#/$defs/a"}}]
)
def test_what_only_the_compiler_finds_out_is_a_bad_request_too(
    wish: dict[str, Any], stream: bool, tiny_server: ServerProcess
) -> None:
    fields = {"structured_outputs": wish, "stream": stream}
    with tiny_server.client() as http:
        answer = http.post("/v1/completions", json={**COMPLETE, **fields})
        after = http.post("/v1/completions", json=COMPLETE)
    assert answer.status_code == 400
    assert "cannot be compiled" in answer.json()["error"]["message"]
    assert after.status_code == 200


def test_a_format_that_asks_for_nothing_changes_nothing(tiny_server: ServerProcess) -> None:
    ask = {**COMPLETE, "temperature": 0}
    with tiny_server.client() as http:
        plain = http.post("/v1/completions", json=ask).json()
        text = http.post("/v1/completions", json={**ask, "response_format": {"type": "text"}})
    assert text.json()["choices"] == plain["choices"]


def test_a_model_without_a_tokenizer_refuses() -> None:
    core = make_core()
    assert "needs a tokenizer" in (core.structured_outputs.complaint() or "")


class InboxWithoutApi(Inbox):
    """An inbox that reads no pipe, whose end would be the end of the process."""

    def _read(self, connection: Connection) -> None:
        return


def test_a_compiled_grammar_wakes_the_step_loop() -> None:
    core, clock = make_core(), RunClock.start()
    _, theirs = multiprocessing.Pipe()
    inbox = InboxWithoutApi(theirs)
    recorder = NullRecorder()
    life = LifeEvents(recorder, clock.now)
    StepLoop(core, inbox, theirs, recorder, clock, life, EngineSettings())
    core.structured_outputs.on_compiled()
    assert inbox.take(SECONDS) == [GrammarCompiled()]
