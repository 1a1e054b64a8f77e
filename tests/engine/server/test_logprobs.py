"""Log probabilities as clients of the API get them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.engine.server.server_process import ServerProcess

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def http(tiny_server: ServerProcess) -> Iterator[httpx.Client]:
    with tiny_server.client() as client:
        yield client


def ask(http: httpx.Client, path: str = "completions", **body: Any) -> dict[str, Any]:
    """Returns the only choice of an answer."""
    answer = http.post(f"/v1/{path}", json=_asked(path, body))
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    return dict(choice)


def stream(http: httpx.Client, path: str = "completions", **body: Any) -> list[dict[str, Any]]:
    """Returns the choices of a stream's chunks."""
    answer = http.post(f"/v1/{path}", json={**_asked(path, body), "stream": True})
    *events, closing, _ = answer.text.split("\n\n")
    assert closing == "data: [DONE]"
    return [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]


def _asked(path: str, body: dict[str, Any]) -> dict[str, Any]:
    what = {"messages": HELLO} if path == "chat/completions" else {"prompt": "Once"}
    return {**what, "temperature": 0, "ignore_eos": True, "max_tokens": 30, **body}


def test_a_completion_tells_of_each_token(http: httpx.Client) -> None:
    choice = ask(http, logprobs=2, return_token_ids=True)
    found = choice["logprobs"]
    assert {len(column) for column in found.values()} == {len(choice["token_ids"])} == {30}
    assert all(logprob <= 0 for logprob in found["token_logprobs"])


def test_the_greedy_token_is_the_likeliest(http: httpx.Client) -> None:
    found = ask(http, logprobs=2)["logprobs"]
    for token, logprob, top in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert len(top) == 2
        assert max(top, key=lambda text: top[text]) == token
        assert top[token] == logprob


def test_a_drawn_token_is_told_beside_the_likeliest(http: httpx.Client) -> None:
    found = ask(http, logprobs=1, temperature=2.0, seed=3, max_tokens=60)["logprobs"]
    assert {len(top) for top in found["top_logprobs"]} == {1, 2}
    for token, top in zip(found["tokens"], found["top_logprobs"], strict=True):
        assert token in top


def test_they_are_the_models_own_whatever_is_done_to_the_logits(http: httpx.Client) -> None:
    plain = ask(http, logprobs=0, max_tokens=1)["logprobs"]
    bias = {str(ask(http, max_tokens=1, return_token_ids=True)["token_ids"][0]): 50}
    changed = ask(
        http,
        logprobs=0,
        max_tokens=1,
        logit_bias=bias,
        temperature=1.5,
        top_k=1,
        repetition_penalty=1.2,
        seed=1,
    )
    assert changed["logprobs"] == plain
    assert not math.isclose(plain["token_logprobs"][0], 0.0)


def test_text_offsets_point_into_the_text(http: httpx.Client) -> None:
    only_letters = {str(code - 33): 100 for code in range(65, 91)}  # this model's tokens are bytes
    choice = ask(http, logprobs=0, temperature=1, logit_bias=only_letters, max_tokens=20)
    found = choice["logprobs"]
    assert found["text_offset"] == list(range(20))
    assert list(choice["text"]) == found["tokens"]


def test_a_token_behind_a_stop_string_has_no_logprob(http: httpx.Client) -> None:
    free = ask(http, logprobs=1, return_token_ids=True)
    ascii_only = [i for i, token in enumerate(free["logprobs"]["tokens"]) if token.isascii()]
    stop = next(
        free["logprobs"]["tokens"][i]
        for i in ascii_only
        if i > 4 and not free["logprobs"]["tokens"][i].startswith("bytes:")
    )
    choice = ask(http, logprobs=1, stop=stop, return_token_ids=True)
    num_tokens = len(choice["token_ids"])
    assert num_tokens < 30
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"]["tokens"] == free["logprobs"]["tokens"][:num_tokens]


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_a_stream_tells_what_the_whole_answer_tells(http: httpx.Client, path: str) -> None:
    is_chat = path == "chat/completions"
    wanted = {"logprobs": True, "top_logprobs": 3} if is_chat else {"logprobs": 3}
    whole = ask(http, path, **wanted)["logprobs"]
    told = [c["logprobs"] for c in stream(http, path, **wanted) if c["logprobs"] is not None]
    for column in ["content"] if is_chat else ["tokens", "text_offset", "token_logprobs"]:
        assert [one for part in told for one in part[column]] == whole[column]
    assert len(told) > 1


def test_a_chat_tells_of_each_token_and_its_bytes(http: httpx.Client) -> None:
    choice = ask(http, "chat/completions", logprobs=True, top_logprobs=2)
    content = choice["logprobs"]["content"]
    assert len(content) == 30
    assert [len(one["top_logprobs"]) for one in content] == [2] * 30
    utf8 = b"".join(bytes(one["bytes"]) for one in content)
    assert utf8.decode(errors="replace") == choice["message"]["content"]
    assert all(one["top_logprobs"][0]["logprob"] == one["logprob"] for one in content)


def test_a_chat_may_ask_for_the_tokens_alone(http: httpx.Client) -> None:
    content = ask(http, "chat/completions", logprobs=True)["logprobs"]["content"]
    assert [one["top_logprobs"] for one in content] == [[]] * 30


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_who_does_not_ask_is_not_told(http: httpx.Client, path: str) -> None:
    assert ask(http, path)["logprobs"] is None


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("completions", {"logprobs": 21}, "logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_more_than_the_limit_is_refused_with_it(
    http: httpx.Client, path: str, body: dict[str, Any], field: str
) -> None:
    answer = http.post(f"/v1/{path}", json=_asked(path, body))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, field)
    assert "is 21 but at most 20" in error["message"]
    assert "--max-logprobs" in error["message"]
