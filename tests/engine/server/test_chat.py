"""`/v1/chat/completions` as its clients see it: a real server with a real model, over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.server.settings import ServerSettings
from engine.text.tokenizer import Tokenizer
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import ServerProcess, wait_until
from tests.engine.text.small_tokenizers import byte_tokenizer

HELLO = [{"role": "user", "content": "Hello"}]
HELLO_AS_TEXT = "user: Hello\nassistant: "
"""What the tiny Llama's template makes of it, behind BOS."""


@pytest.fixture
def http(tiny_server: ServerProcess) -> Iterator[httpx.Client]:
    with tiny_server.client() as client:
        yield client


def chat(http: httpx.Client, **body: Any) -> dict[str, Any]:
    body = {"messages": HELLO, "temperature": 0, "ignore_eos": True, **body}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def stream(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """Returns the objects of a stream that must close in order."""
    body = {"messages": HELLO, "temperature": 0, "ignore_eos": True, "stream": True, **body}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    *events, closing, rest = answer.text.split("\n\n")
    assert (closing, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def complete(http: httpx.Client, prompt: str, max_tokens: int) -> str:
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    text: str = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    return text


def test_a_chat_is_the_completion_of_the_templates_text(http: httpx.Client) -> None:
    answer = chat(http, max_tokens=20)
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == complete(http, HELLO_AS_TEXT, 20)
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {
        "prompt_tokens": 1 + len(HELLO_AS_TEXT),
        "completion_tokens": 20,
        "total_tokens": 21 + len(HELLO_AS_TEXT),
    }


def test_a_stream_says_who_speaks_what_and_why_it_ended(http: httpx.Client) -> None:
    whole = chat(http, max_tokens=30)["choices"][0]["message"]["content"]
    first, *chunks = stream(http, max_tokens=30)
    assert {chunk["object"] for chunk in (first, *chunks)} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in (first, *chunks)}) == 1
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == whole
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["length"]


def test_a_stream_carries_its_usage_last_when_asked(http: httpx.Client) -> None:
    *chunks, last = stream(http, max_tokens=4, stream_options={"include_usage": True})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert all(chunk["usage"] is None for chunk in chunks)


def test_without_a_number_an_answer_may_take_the_room_that_there_is(http: httpx.Client) -> None:
    usage = chat(http, messages=[{"role": "user", "content": "x" * 950}])["usage"]
    assert usage["total_tokens"] == 63 * 16 + 1


def test_the_newer_name_of_the_limit_goes_first(http: httpx.Client) -> None:
    assert chat(http, max_tokens=9, max_completion_tokens=3)["usage"]["completion_tokens"] == 3


def test_parts_of_text_are_one_text(http: httpx.Client) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    in_parts = chat(http, messages=[{"role": "user", "content": parts}], max_tokens=12)
    in_one = chat(http, messages=[{"role": "user", "content": "one\ntwo"}], max_tokens=12)
    assert in_parts["choices"] == in_one["choices"]


def test_without_a_generation_prompt_the_conversation_ends_as_it_is(http: httpx.Client) -> None:
    answer = chat(http, max_tokens=12, add_generation_prompt=False)
    assert answer["choices"][0]["message"]["content"] == complete(http, "user: Hello\n", 12)


def test_fields_that_clients_send_by_default_change_nothing(http: httpx.Client) -> None:
    plain = chat(http, max_tokens=8)["choices"]
    extras = {"n": 1, "tools": None, "response_format": {"type": "text"}, "logprobs": False}
    assert chat(http, max_tokens=8, **extras)["choices"] == plain


def test_the_answer_carries_the_callers_request_id(http: httpx.Client) -> None:
    headers = {"X-Request-Id": "talk-1"}
    body = {"messages": HELLO, "max_tokens": 1}
    answer = http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.headers["x-request-id"] == "talk-1"
    assert answer.json()["id"] == "chatcmpl-talk-1"


def test_a_client_that_hangs_up_ends_its_request(tiny_server: ServerProcess) -> None:
    aborts = 'vllm:request_success_total{finished_reason="abort"}'
    wait_until(lambda: tiny_server.metric("vllm:num_requests_running") == 0)
    before = tiny_server.metric(aborts)
    body = {"messages": HELLO, "ignore_eos": True, "stream": True}
    with (
        tiny_server.client() as http,
        http.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        next(answer.iter_raw())
    wait_until(lambda: tiny_server.metric(aborts) == before + 1)


def test_what_can_never_fit_is_refused_with_its_numbers(http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 1490}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "messages"
    assert "max_model_len is 1,500" in error["message"]


PART = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize(
    ("body", "status", "param", "says"),
    [
        ({}, 400, "messages", "at least one message"),
        ({"messages": []}, 400, "messages", "at least one message"),
        ({"messages": ["hi"]}, 400, "messages[0]", "is no object"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages[0]", "'robot'"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "must be a text"),
        ({"messages": [{**HELLO[0], "mood": 1}]}, 400, "messages[0]", "mood is not a field"),
        (
            {"messages": [{"role": "user", "content": [PART]}]},
            400,
            "messages[0].content[0]",
            "'image_url': only text parts",
        ),
        ({"messages": HELLO, "model": "gpt-4"}, 404, "model", "not served here"),
        ({"messages": HELLO, "prompt": "x"}, 400, "prompt", "not a field"),
        ({"messages": HELLO, "max_tokens": 0}, 400, "max_tokens", "1 or more"),
        ({"messages": HELLO, "temperature": -1}, 400, "temperature", "between 0 and 2"),
        ({"messages": HELLO, "tools": [{"type": "function"}]}, 400, "tools", "not supported"),
        ({"messages": HELLO, "n": 129}, 400, "n", "between 1 and 128"),
        (
            {"messages": HELLO, "chat_template_kwargs": {"messages": []}},
            400,
            "chat_template_kwargs",
            "has messages, which is a field of its own",
        ),
        ({"messages": HELLO, "stream_options": {}}, 400, "stream_options", "only allowed"),
    ],
)
def test_a_wrong_field_is_named(
    http: httpx.Client, body: dict[str, Any], status: int, param: str, says: str
) -> None:
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["param"] == param
    assert says in error["message"]


def test_a_model_can_be_looked_up_by_its_name(http: httpx.Client) -> None:
    (card,) = http.get("/v1/models").json()["data"]
    assert http.get("/v1/models/tiny-llama").json() == card
    assert http.get("/v1/models/org/other").status_code == 404


def post_in_process(template: str | None, tokenizer: Tokenizer | None) -> httpx.Response:
    settings = ServerSettings(chat_template=template)
    with serving_in_process(make_core(), settings=settings, tokenizer=tokenizer) as url:
        body = {"messages": HELLO, "max_tokens": 2}
        return httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False)


def test_a_template_of_the_settings_is_used() -> None:
    answer = post_in_process("{{ messages[0].content }}!", byte_tokenizer())
    assert answer.json()["usage"]["prompt_tokens"] == len("Hello!")


@pytest.mark.parametrize(
    ("template", "tokenizer", "says"),
    [
        ("{{ messages }}", None, "has no tokenizer.json"),
        (None, byte_tokenizer(), "has no chat template: start the server with --chat-template"),
        ("", byte_tokenizer(), "give no tokens"),
        ("{{ raise_exception('no') }}", byte_tokenizer(), "refuses these messages: no"),
    ],
)
def test_a_model_that_cannot_chat_says_why(
    template: str | None, tokenizer: Tokenizer | None, says: str
) -> None:
    answer = post_in_process(template, tokenizer)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "says"), [(None, "cannot be read"), ("{% for %}", "the chat template is broken")]
)
def test_a_template_that_cannot_be_used_is_told_before_anything_starts(
    content: str | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jinja"
    if content is not None:
        path.write_text(content)
    serve = ["-m", "stepscope", "serve", "--no-record", "--port", "0"]
    ended = subprocess.run(
        [sys.executable, *serve, "--chat-template", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
