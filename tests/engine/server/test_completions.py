"""The API as its clients see it: a real server with a real model, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.engine.server.server_process import ServerProcess, wait_until


@pytest.fixture
def http(tiny_server: ServerProcess) -> Iterator[httpx.Client]:
    with tiny_server.client() as client:
        yield client


def complete(http: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = http.post("/v1/completions", json={"temperature": 0, "ignore_eos": True, **body})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def stream(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    """Returns the objects of a stream that must close in order."""
    body = {"temperature": 0, "ignore_eos": True, "stream": True, **body}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        text = answer.read().decode()
    *events, closing, rest = text.split("\n\n")
    assert (closing, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_models_tell_what_a_client_must_know(http: httpx.Client) -> None:
    (card,) = http.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"], card["vocab_size"]) == ("tiny-llama", 1500, 258)


def test_a_text_prompt_gives_text_and_usage(http: httpx.Client) -> None:
    answer = complete(http, prompt="Once upon", max_tokens=7)
    assert answer["object"] == "text_completion"
    (choice,) = answer["choices"]
    assert choice["text"]
    assert choice["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}


def test_text_and_its_token_ids_are_the_same_prompt(http: httpx.Client) -> None:
    bos, vocabulary = 256, {chr(code): code - 33 for code in range(33, 127)}
    ids = [bos, *(vocabulary[letter] for letter in "upon")]
    texts = [complete(http, prompt=p, max_tokens=9)["choices"][0]["text"] for p in ("upon", ids)]
    assert texts[0] == texts[1]


def test_a_list_of_prompts_gives_a_choice_each(http: httpx.Client) -> None:
    answer = complete(http, prompt=["one", "two"], max_tokens=5)
    singly = [complete(http, prompt=p, max_tokens=5)["choices"][0]["text"] for p in ("one", "two")]
    assert [choice["text"] for choice in answer["choices"]] == singly
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


def test_a_list_of_id_lists_gives_a_choice_each(http: httpx.Client) -> None:
    answer = complete(http, prompt=[[1, 2], [3]], max_tokens=5)
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}


def test_a_stream_says_what_the_whole_answer_says(http: httpx.Client) -> None:
    whole = complete(http, prompt="abc", max_tokens=40, return_token_ids=True)["choices"][0]
    chunks = [
        chunk["choices"][0]
        for chunk in stream(http, prompt="abc", max_tokens=40, return_token_ids=True)
    ]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    assert [token for chunk in chunks for token in chunk["token_ids"]] == whole["token_ids"]
    assert [c["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["length"]


def test_a_stream_carries_its_usage_last_when_asked(http: httpx.Client) -> None:
    *chunks, last = stream(
        http, prompt=[5, 6], max_tokens=4, stream_options={"include_usage": True}
    )
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert all(chunk["usage"] is None for chunk in chunks)


def test_a_stream_without_asking_carries_no_usage(http: httpx.Client) -> None:
    assert all("usage" not in chunk for chunk in stream(http, prompt=[5, 6], max_tokens=4))


def _ascii_pair(text: str) -> str:
    """Returns two neighbours out of the middle of a text, each a token of its own here."""
    for start in range(5, len(text) - 1):
        pair = text[start : start + 2]
        if pair.isascii() and pair.isprintable() and text.find(pair) == start:
            return pair
    raise AssertionError(f"no pair to stop at in {text!r}")


def test_a_stop_string_across_tokens_ends_the_text_before_it(http: httpx.Client) -> None:
    free = complete(http, prompt="stop me", max_tokens=60)["choices"][0]["text"]
    pair = _ascii_pair(free)
    answer = complete(http, prompt="stop me", max_tokens=60, stop=[pair, "never said"])
    (choice,) = answer["choices"]
    assert choice["text"] == free[: free.index(pair)]
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] < 60


def test_a_stop_string_in_a_stream_is_never_sent_in_part(http: httpx.Client) -> None:
    free = complete(http, prompt="stop me", max_tokens=60)["choices"][0]["text"]
    pair = _ascii_pair(free)
    chunks = stream(http, prompt="stop me", max_tokens=60, stop=pair)
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == free[: free.index(pair)]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_stop_string_frees_the_engine(tiny_server: ServerProcess, http: httpx.Client) -> None:
    free = complete(http, prompt="stop me", max_tokens=60)["choices"][0]["text"]
    complete(http, prompt="stop me", max_tokens=900, ignore_eos=True, stop=_ascii_pair(free))
    wait_until(lambda: tiny_server.metric("vllm:num_requests_running") == 0)


def test_a_stop_token_ends_the_output(http: httpx.Client) -> None:
    free = complete(http, prompt="x", max_tokens=20, return_token_ids=True)
    token_ids = free["choices"][0]["token_ids"]
    stop_id = token_ids[7]
    answer = complete(
        http, prompt="x", max_tokens=20, stop_token_ids=[stop_id], return_token_ids=True
    )
    (choice,) = answer["choices"]
    assert choice["token_ids"] == token_ids[: token_ids.index(stop_id) + 1]
    assert choice["finish_reason"] == "stop"


def test_a_seed_repeats_a_sampled_output(http: httpx.Client) -> None:
    body = {"prompt": "dice", "max_tokens": 20, "temperature": 1.0, "top_p": 0.9, "top_k": 50}
    first, second, other = (
        complete(http, **body, seed=seed, return_token_ids=True)["choices"][0]["token_ids"]
        for seed in (7, 7, 8)
    )
    assert first == second
    assert first != other


def test_the_answer_carries_the_callers_request_id(http: httpx.Client) -> None:
    answer = http.post(
        "/v1/completions",
        json={"prompt": [1], "max_tokens": 1},
        headers={"X-Request-Id": "order-17"},
    )
    assert answer.headers["x-request-id"] == "order-17"
    assert answer.json()["id"] == "cmpl-order-17"


def test_two_requests_at_once_cannot_share_an_id(http: httpx.Client) -> None:
    headers = {"X-Request-Id": "twice"}
    body = {"prompt": [1], "max_tokens": 800, "ignore_eos": True, "stream": True}
    with http.stream("POST", "/v1/completions", json=body, headers=headers) as first:
        chunks = first.iter_raw()
        next(chunks)
        second = http.post("/v1/completions", json={"prompt": [1]}, headers=headers)
    assert second.status_code == 409
    assert "twice" in second.json()["error"]["message"]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_hangs_up_ends_its_request(
    tiny_server: ServerProcess, streamed: bool
) -> None:
    aborts = 'vllm:request_success_total{finished_reason="abort"}'
    wait_until(lambda: tiny_server.metric("vllm:num_requests_running") == 0)
    before = tiny_server.metric(aborts)
    body = {"prompt": [1], "max_tokens": 900, "ignore_eos": True, "stream": streamed}
    with tiny_server.client() as short_lived:
        request = short_lived.build_request("POST", "/v1/completions", json=body, timeout=0.5)
        if streamed:
            answer = short_lived.send(request, stream=True)
            chunks = answer.iter_raw()
            next(chunks)
            assert tiny_server.metric("vllm:num_requests_running") >= 1
            answer.close()
        else:
            with pytest.raises(httpx.ReadTimeout):
                short_lived.send(request)
    wait_until(lambda: tiny_server.metric(aborts) == before + 1)
    assert tiny_server.metric("vllm:num_requests_running") == 0


def test_an_urgent_request_is_taken_before_earlier_ones(tiny_server: ServerProcess) -> None:
    with tiny_server.client() as http:
        answer = http.post(
            "/v1/completions", json={"prompt": [1, 2], "max_tokens": 2, "priority": -3}
        )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "says"),
    [(700, 400, "69 KV blocks of 16 tokens, but the engine has 63"), (1490, 11, "1,501, but max")],
)
def test_what_can_never_fit_is_refused_with_its_numbers(
    http: httpx.Client, num_prompt: int, max_tokens: int, says: str
) -> None:
    body = {"prompt": [1] * num_prompt, "max_tokens": max_tokens}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"prompt": "a", "model": "gpt-4"}, 404, "model"),
        ({}, 400, "prompt"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": [258]}, 400, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": "5"}, 400, "max_tokens"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature"),
        ({"prompt": "a", "n": 0}, 400, "n"),
        ({"prompt": "a", "stop": [""]}, 400, "stop"),
        ({"prompt": "a", "priority": 2**31}, 400, "priority"),
        ({"prompt": "a", "colour": "red"}, 400, "colour"),
    ],
)
def test_a_wrong_field_is_named(
    http: httpx.Client, body: dict[str, Any], status: int, param: str
) -> None:
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_a_body_that_is_not_json_is_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", content=b"{")
    assert answer.status_code == 400
    assert "not JSON" in answer.json()["error"]["message"]


def test_a_body_that_is_nested_too_deeply_is_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", content=b"[" * 100_000)
    assert answer.status_code == 400
    assert "nested too deeply" in answer.json()["error"]["message"]


@pytest.mark.parametrize("half", [rb"\ud800", rb"\uDC00x", b"\xed\xa0\x80"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completions", b'{"prompt": "a%s"}'),
        ("chat/completions", b'{"messages": [{"role": "user", "content": "a%s"}]}'),
        ("completions", b'{"prompt": "a", "stop": ["%s"]}'),
    ],
)
def test_half_a_surrogate_pair_is_refused(
    http: httpx.Client, path: str, body: bytes, half: bytes
) -> None:
    answer = http.post(f"/v1/{path}", content=body % half)
    assert answer.status_code == 400
    assert "half a surrogate pair" in answer.json()["error"]["message"]


def test_a_whole_surrogate_pair_is_text(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", content=rb'{"prompt": "\ud83d\ude00", "max_tokens": 1}')
    assert answer.json()["usage"]["prompt_tokens"] == 1 + len("😀".encode())


def test_an_unknown_path_is_answered_as_the_api_answers(http: httpx.Client) -> None:
    answer = http.get("/v2/nothing")
    assert answer.status_code == 404
    assert "/v2/nothing" in answer.json()["error"]["message"]


def test_health_and_live_are_fine_at_rest(http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ready"}
    assert http.get("/live").json()["status"] == "live"


def test_the_metrics_page_counts_what_was_answered(tiny_server: ServerProcess) -> None:
    before = tiny_server.metric("vllm:generation_tokens_total")
    with tiny_server.client() as http:
        complete(http, prompt=[9, 9], max_tokens=6, ignore_eos=True)
    assert tiny_server.metric("vllm:generation_tokens_total") == before + 6
    assert tiny_server.metric("vllm:prompt_tokens_total") >= 2
