"""Several choices of one prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.engine.server.server_process import ServerProcess, wait_until

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def http(tiny_server: ServerProcess) -> Iterator[httpx.Client]:
    with tiny_server.client() as client:
        yield client


def post(http: httpx.Client, path: str = "completions", **body: Any) -> httpx.Response:
    answer = http.post(f"/v1/{path}", json={"max_tokens": 12, "ignore_eos": True, **body})
    assert answer.status_code == 200, answer.text
    return answer


def texts(http: httpx.Client, **body: Any) -> list[str]:
    return [choice["text"] for choice in post(http, **body).json()["choices"]]


def test_each_prompt_has_so_many_choices_one_behind_the_other(http: httpx.Client) -> None:
    answer = post(http, prompt=["one", "two"], n=3, temperature=0).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    said = [choice["text"] for choice in answer["choices"]]
    assert said[:3] == [said[0]] * 3 != said[3:] == [said[3]] * 3
    assert said[0] == texts(http, prompt="one", temperature=0)[0]


def test_a_prompt_counts_once_and_each_output_counts(http: httpx.Client) -> None:
    usage = post(http, prompt=[[1, 2, 3], [4]], n=2).json()["usage"]
    assert usage == {"prompt_tokens": 4, "completion_tokens": 48, "total_tokens": 52}


def test_a_seed_is_counted_up_from_choice_to_choice(http: httpx.Client) -> None:
    several = texts(http, prompt="dice", n=3, seed=40)
    singly = [texts(http, prompt="dice", seed=40 + i)[0] for i in range(3)]
    assert several == singly
    assert len(set(several)) == 3


def test_without_a_seed_choices_differ(http: httpx.Client) -> None:
    assert len(set(texts(http, prompt="dice", n=4))) == 4


def test_each_choice_of_a_stream_says_what_the_whole_answer_says(http: httpx.Client) -> None:
    whole = texts(http, prompt="dice", n=3, seed=7)
    streamed = post(http, prompt="dice", n=3, seed=7, stream=True).text
    said = [""] * 3
    for event in streamed.split("\n\n")[:-2]:
        (choice,) = json.loads(event.removeprefix("data: "))["choices"]
        said[choice["index"]] += choice["text"]
    assert said == whole


def test_each_choice_of_a_chats_stream_says_who_speaks(http: httpx.Client) -> None:
    streamed = post(http, "chat/completions", messages=HELLO, n=2, seed=7, stream=True).text
    chunks = [json.loads(e.removeprefix("data: ")) for e in streamed.split("\n\n")[:-2]]
    choices = [chunk["choices"][0] for chunk in chunks]
    speakers = [choice["index"] for choice in choices if choice["delta"].get("role")]
    assert speakers == [0, 1]
    assert sorted(c["index"] for c in choices if c["finish_reason"]) == [0, 1]


def test_choices_end_each_for_itself(http: httpx.Client) -> None:
    answer = post(http, prompt="dice", n=8, seed=3, max_tokens=40, stop=["a", "e", "i"]).json()
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"stop", "length"}


def test_a_client_that_hangs_up_ends_all_its_choices(tiny_server: ServerProcess) -> None:
    wait_until(lambda: tiny_server.metric("vllm:num_requests_running") == 0)
    body = {"prompt": [1], "max_tokens": 200, "n": 4, "ignore_eos": True, "stream": True}
    with tiny_server.client() as http, http.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_raw())
    wait_until(lambda: tiny_server.metric("vllm:num_requests_running") == 0)


def test_the_best_of_as_many_is_all_of_them(http: httpx.Client) -> None:
    assert len(texts(http, prompt="dice", n=2, best_of=2)) == 2
