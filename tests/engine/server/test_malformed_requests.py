"""A hundred ways to ask wrongly, each answered as OpenAI's API does; the engine does not notice.

What is no HTTP at all is `test_hostile_http`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.engine.server.server_process import ServerProcess

MODEL = "tiny-llama"
HELLO = [{"role": "user", "content": "Hello"}]


@dataclass(frozen=True, kw_only=True)
class Malformed:
    """A request, and what its answer blames."""

    param: str | None
    content: bytes
    path: str = "/v1/completions"
    method: str = "POST"
    status: int = 400
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, http: httpx.Client) -> httpx.Response:
        headers = {"Content-Type": "application/json", **self.headers}
        return http.request(self.method, self.path, content=self.content, headers=headers)


def completion(param: str | None, status: int = 400, **fields: Any) -> Malformed:
    body = {"model": MODEL, "prompt": "a", "max_tokens": 2, **fields}
    return Malformed(param=param, status=status, content=json.dumps(body).encode())


def chat(param: str | None, status: int = 400, **fields: Any) -> Malformed:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 2, **fields}
    content = json.dumps(body).encode()
    return Malformed(param=param, status=status, content=content, path="/v1/chat/completions")


def raw(content: bytes, **how: Any) -> Malformed:
    return Malformed(param=None, content=content, **how)


def headers(**given: str) -> Malformed:
    named = {name.replace("_", "-"): value for name, value in given.items()}
    return Malformed(param=None, content=completion(None).content, headers=named)


def typed(media_type: str) -> Malformed:
    content = completion(None).content
    return Malformed(param=None, content=content, status=415, headers={"Content-Type": media_type})


def elsewhere(method: str, path: str, status: int) -> Malformed:
    return Malformed(
        param=None, content=completion(None).content, method=method, path=path, status=status
    )


def said(param: str, **message: Any) -> Malformed:
    return chat(param, messages=[message])


def formatted(param: str, **response_format: Any) -> Malformed:
    return chat(param, response_format=response_format)


def schema(param: str, value: Any) -> Malformed:
    return formatted(param, type="json_schema", json_schema={"name": "x", "schema": value})


def structured(param: str, **given: Any) -> Malformed:
    return completion(param, structured_outputs=given)


NOT_JSON = {
    "an empty body": raw(b""),
    "a text": raw(b"tell me a story"),
    "half an object": raw(b'{"prompt": "a"'),
    "an object and a half": raw(b'{"prompt": "a"}{'),
    "a trailing comma": raw(b'{"prompt": "a",}'),
    "single quotes": raw(b"{'prompt': 'a'}"),
    "a form": raw(b"prompt=a&max_tokens=2"),
    "a list": raw(b'["a"]'),
    "a number": raw(b"5"),
    "a string": raw(b'"a"'),
    "null": raw(b"null"),
    "a deep nest": raw(b'{"prompt": ' + b"[" * 50_000),
    "bytes that are no text": raw(b'{"prompt": "\xff\xfe"}'),
    "half a surrogate pair": raw(rb'{"prompt": "\ud800"}'),
    "a number of many digits": raw(b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}"),
    "an empty body of a chat": raw(b"", path="/v1/chat/completions"),
}

PROMPTS = {
    "no prompt": completion("prompt", prompt=None),
    "an empty text": completion("prompt", prompt=[]),
    "a prompt that is a number": completion("prompt", prompt=5),
    "a prompt that is an object": completion("prompt", prompt={"text": "a"}),
    "an empty list of tokens": completion("prompt", prompt=[[]]),
    "a list of texts and tokens": completion("prompt", prompt=["a", 1]),
    "token ids that are texts": completion("prompt", prompt=[["1", "2"]]),
    "token ids with a fraction": completion("prompt", prompt=[1.5]),
    "token ids that are true": completion("prompt", prompt=[True]),
    "a token id below 0": completion("prompt", prompt=[-1]),
    "a token id behind the vocabulary": completion("prompt", prompt=[258]),
    "a token id without an end": completion("prompt", prompt=[10**40]),
    "a prompt longer than the model": completion("prompt", prompt=[1] * 1501),
    "a prompt larger than the KV cache": completion("prompt", prompt=[1] * 1100),
    "a text longer than the model": completion("prompt", prompt="a" * 20_000),
    "one bad prompt among good ones": completion("prompt", prompt=[[1], [2], [999]]),
}

NUMBERS = {
    "max_tokens 0": completion("max_tokens", max_tokens=0),
    "max_tokens below 0": completion("max_tokens", max_tokens=-1),
    "max_tokens as a text": completion("max_tokens", max_tokens="2"),
    "max_tokens with a fraction": completion("max_tokens", max_tokens=1.5),
    "max_tokens without an end": completion("prompt", max_tokens=10**30),
    "max_tokens that are true": completion("max_tokens", max_tokens=True),
    "min_tokens above max_tokens": completion("min_tokens", min_tokens=3),
    "min_tokens below 0": completion("min_tokens", min_tokens=-1),
    "temperature below 0": completion("temperature", temperature=-0.1),
    "temperature above 2": completion("temperature", temperature=2.1),
    "temperature as a text": completion("temperature", temperature="hot"),
    "temperature NaN": Malformed(
        param="temperature", content=b'{"prompt": "a", "temperature": NaN}'
    ),
    "temperature 1e999": Malformed(
        param="temperature", content=b'{"prompt": "a", "temperature": 1e999}'
    ),
    "top_p 0": completion("top_p", top_p=0),
    "top_p above 1": completion("top_p", top_p=1.01),
    "top_k below -1": completion("top_k", top_k=-2),
    "top_k with a fraction": completion("top_k", top_k=2.5),
    "min_p above 1": completion("min_p", min_p=1.5),
    "min_p below 0": completion("min_p", min_p=-0.5),
    "presence_penalty above 2": completion("presence_penalty", presence_penalty=2.5),
    "frequency_penalty below -2": completion("frequency_penalty", frequency_penalty=-3),
    "repetition_penalty 0": completion("repetition_penalty", repetition_penalty=0),
    "repetition_penalty as a list": completion("repetition_penalty", repetition_penalty=[1]),
    "a seed with a fraction": completion("seed", seed=1.5),
    "a seed beyond 64 bits": completion("seed", seed=2**64),
    "a priority beyond 32 bits": completion("priority", priority=2**31),
    "n 0": completion("n", n=0),
    "n below 0": completion("n", n=-1),
    "n huge": completion("n", n=10**9),
    "n huge in a chat": chat("n", n=10**9),
    "n as a text": completion("n", n="2"),
    "best_of above n": completion("best_of", n=2, best_of=3),
}

OTHER_FIELDS = {
    "logit_bias as a list": completion("logit_bias", logit_bias=[1, 2]),
    "logit_bias of a word": completion("logit_bias", logit_bias={"hello": 1}),
    "logit_bias of a negative token": completion("logit_bias", logit_bias={"-1": 1}),
    "logit_bias of a token that is none": completion("logit_bias", logit_bias={"258": 1}),
    "logit_bias of a token without an end": completion("logit_bias", logit_bias={"9" * 400: 1}),
    "logit_bias above 100": completion("logit_bias", logit_bias={"5": 101}),
    "logit_bias as a text": completion("logit_bias.5", logit_bias={"5": "much"}),
    "logprobs below 0": completion("logprobs", logprobs=-1),
    "logprobs above the limit": completion("logprobs", logprobs=21),
    "logprobs that are true": completion("logprobs", logprobs=True),
    "logprobs of a chat as a number": chat("logprobs", logprobs=3),
    "top_logprobs above the limit": chat("top_logprobs", logprobs=True, top_logprobs=21),
    "top_logprobs below 0": chat("top_logprobs", logprobs=True, top_logprobs=-1),
    "top_logprobs without logprobs": chat("top_logprobs", top_logprobs=2),
    "an empty stop": completion("stop", stop=""),
    "an empty stop among others": completion("stop", stop=["a", ""]),
    "a stop that is a number": completion("stop", stop=5),
    "stop_token_ids as texts": completion("stop_token_ids.0", stop_token_ids=["1"]),
    "ignore_eos as a text": completion("ignore_eos", ignore_eos="yes"),
    "stream as a number": completion("stream", stream=1),
    "stream_options without a stream": completion("stream_options", stream_options={}),
    "stream_options with more": completion(
        "stream_options.usage", stream=True, stream_options={"usage": True}
    ),
    "echo": completion("echo", echo=True),
    "a suffix": completion("suffix", suffix="b"),
    "beam search": completion("use_beam_search", use_beam_search=True),
    "prompt_logprobs": completion("prompt_logprobs", prompt_logprobs=1),
    "a field that is none": completion("colour", colour="red"),
    "a field of chats": completion("messages", messages=HELLO),
    "a model that is a number": completion("model", model=5),
    "another model": completion("model", 404, model="gpt-4"),
    "a path for a model": completion("model", 404, model="../../etc/passwd"),
    "an adapter that nobody loaded": chat("model", 404, model="sql-lora"),
}

CHATS = {
    "no messages": chat("messages", messages=None),
    "an empty list of messages": chat("messages", messages=[]),
    "messages as a text": chat("messages", messages="hello"),
    "a message that is a text": chat("messages[0]", messages=["hello"]),
    "a message without a role": said("messages[0]", content="a"),
    "a role that is none": said("messages[0]", role="wizard", content="a"),
    "a role that is a list": said("messages[0]", role=["user"], content="a"),
    "a message without content": said("messages[0].content", role="user"),
    "content that is a number": said("messages[0].content", role="user", content=5),
    "a picture": said(
        "messages[0].content[0]",
        role="user",
        content=[{"type": "image_url", "image_url": {"url": "http://x/y.png"}}],
    ),
    "a part without text": said("messages[0].content[0]", role="user", content=[{"type": "text"}]),
    "a part that is a text": said("messages[0].content[0]", role="user", content=["a"]),
    "a message with more": said("messages[0]", role="user", content="a", mood="sad"),
    "a second bad message": chat("messages[1]", messages=[*HELLO, {"role": "user", "x": 1}]),
    "a chat longer than the model": chat(
        "messages", messages=[{"role": "user", "content": "a" * 5000}]
    ),
    "max_completion_tokens 0": chat("max_tokens", max_completion_tokens=0),
    "tools": chat("tools", tools=[{"type": "function", "function": {"name": "f"}}]),
    "a field of completions": chat("prompt", prompt="a"),
    "variables that are messages": chat(
        "chat_template_kwargs", chat_template_kwargs={"messages": []}
    ),
    "variables as a list": chat("chat_template_kwargs", chat_template_kwargs=[1]),
}

HEADERS = {
    "a request id with spaces": headers(X_Request_Id="a b"),
    "a request id that is too long": headers(X_Request_Id="a" * 129),
    "an empty request id": headers(X_Request_Id=""),
    "a form's type": typed("application/x-www-form-urlencoded"),
    "plain text's type": typed("text/plain; charset=utf-8"),
    "a file's type": typed("multipart/form-data; boundary=x"),
}

PATHS = {
    "GET for POST": elsewhere("GET", "/v1/completions", 405),
    "PUT": elsewhere("PUT", "/v1/chat/completions", 405),
    "DELETE of a model": elsewhere("DELETE", f"/v1/models/{MODEL}", 405),
    "POST to the models": elsewhere("POST", "/v1/models", 405),
    "another version": elsewhere("POST", "/v2/completions", 404),
    "a path of OpenAI's that is not served": elsewhere("POST", "/v1/embeddings", 404),
    "the root": elsewhere("GET", "/", 404),
    "a model that is not there": Malformed(
        param="model", content=b"", method="GET", path="/v1/models/gpt-4", status=404
    ),
}

STRUCTURED = {
    "a response_format as a text": chat("response_format.type", response_format="json"),
    "a format that is none": formatted("response_format.type", type="yaml"),
    "a json_schema without one": formatted("response_format.json_schema", type="json_schema"),
    "a schema that is a text": schema("response_format.json_schema.schema", "x"),
    "a schema of a type that is none": schema(
        "response_format.json_schema.schema", {"type": "colour"}
    ),
    "a regex that is a number": structured("structured_outputs.regex", regex=5),
    "a regex that does not end": completion(None, structured_outputs={"regex": "("}),
    "a grammar that is none": completion(None, structured_outputs={"grammar": "root ::= ???"}),
    "a schema that refers to nothing": completion(
        None, stream=True, structured_outputs={"json": {"$ref": "#/nope"}}
    ),
    "no choices": structured("structured_outputs.choice", choice=[]),
    "a regex and choices": structured("structured_outputs", regex="a", choice=["a"]),
    "a structure that is none": structured("structured_outputs.haiku", haiku=True),
    "two ways to say the form": completion(
        "structured_outputs",
        response_format={"type": "json_object"},
        structured_outputs={"regex": "a"},
    ),
}


def operator(path: str, param: str | None, content: bytes = b"", status: int = 400) -> Malformed:
    return Malformed(param=param, content=content, path=path, status=status)


OPERATORS = {
    "a pause of a mode that is none": operator("/pause?mode=forever", "mode"),
    "a pause that says maybe": operator("/pause?clear_cache=maybe", "clear_cache"),
    "an outside cache to reset": operator("/reset_prefix_cache?reset_external=1", "reset_external"),
    "ids that are numbers": operator("/abort_requests", "request_ids", b'{"request_ids": [1]}'),
    "ids that are no JSON": operator("/abort_requests", None, b"all of them"),
    "an adapter without a path": operator(
        "/v1/load_lora_adapter", "lora_path", b'{"lora_name": "a"}'
    ),
    "an adapter that is no object": operator("/v1/load_lora_adapter", "the body", b"[]"),
    "an adapter of no place": operator(
        "/v1/load_lora_adapter", "lora_path", b'{"lora_name": "a", "lora_path": "/nowhere"}'
    ),
    "an adapter to forget that is not there": operator(
        "/v1/unload_lora_adapter", "lora_name", b'{"lora_name": "a"}', 404
    ),
}

MALFORMED = {
    **NOT_JSON,
    **PROMPTS,
    **NUMBERS,
    **OTHER_FIELDS,
    **CHATS,
    **HEADERS,
    **PATHS,
    **STRUCTURED,
    **OPERATORS,
}


@pytest.fixture(scope="module")
def http(tiny_server: ServerProcess) -> Iterator[httpx.Client]:
    with tiny_server.client() as client:
        yield client


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
def test_it_is_answered_with_an_error_of_openais_form(
    http: httpx.Client, request_: Malformed
) -> None:
    answer = request_.send(http)
    assert answer.status_code == request_.status, answer.text
    (error,) = answer.json().values()
    assert list(answer.json()) == ["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert len(error["message"]) > 10
    assert error["type"] == "invalid_request_error"
    assert error["param"] == request_.param


def test_an_engine_that_was_asked_them_all_is_unharmed(
    tiny_server: ServerProcess, http: httpx.Client
) -> None:
    ask = {"prompt": "Once", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    before = http.post("/v1/completions", json=ask).json()["choices"]
    for each in MALFORMED.values():
        each.send(http)
    assert http.post("/v1/completions", json=ask).json()["choices"] == before
    books = http.post("/stepscope/integrity").json()
    assert (books["error"], books["report"]["problems"]) == (None, [])
    assert http.get("/live").json()["num_open_requests"] == 0
    assert tiny_server.metric("vllm:num_requests_running") == 0
    assert tiny_server.metric("vllm:num_requests_waiting") == 0
