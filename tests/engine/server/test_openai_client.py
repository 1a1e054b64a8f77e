"""The client that OpenAI ships, unmodified, against our API."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import openai
import pytest

from tests.engine.server.server_process import SECONDS, ServerProcess

MODEL = "tiny-llama"


@pytest.fixture
def client(tiny_server: ServerProcess) -> Iterator[openai.OpenAI]:
    http = httpx2.Client(trust_env=False)
    with openai.OpenAI(
        base_url=f"{tiny_server.url}/v1",
        api_key="none",
        timeout=SECONDS,
        max_retries=0,
        http_client=http,
    ) as client:
        yield client


def test_it_lists_and_finds_the_model(client: openai.OpenAI) -> None:
    (card,) = client.models.list().data
    assert client.models.retrieve(MODEL).id == card.id == MODEL


def test_it_completes_a_prompt(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Once", max_tokens=5, temperature=0)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.choices[0].finish_reason == "length"


def test_it_streams_a_completion(client: openai.OpenAI) -> None:
    ask = {"model": MODEL, "prompt": "Once", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**ask).choices[0].text  # type: ignore[call-overload]
    stream = client.completions.create(**ask, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].text for chunk in stream) == whole


def test_it_chats(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Who are you?"}]},
        ],
        max_completion_tokens=6,
        temperature=0,
    )
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


def test_it_streams_a_chat_to_its_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Count."}],
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12


def test_it_raises_what_openai_would(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.completions.create(model="gpt-4", prompt="x")
    with pytest.raises(openai.BadRequestError, match="temperature is -1"):
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "x"}], temperature=-1
        )


def test_it_gets_several_choices_that_a_seed_repeats(client: openai.OpenAI) -> None:
    asked = [
        client.completions.create(model=MODEL, prompt="dice", n=3, seed=5, max_tokens=12)
        for _ in range(2)
    ]
    texts = [[choice.text for choice in answer.choices] for answer in asked]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3


def test_a_bias_says_what_is_said(client: openai.OpenAI) -> None:
    letter = ord("k") - 33  # this model's tokens are bytes
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Say k."}],
        logit_bias={str(letter): 100},
        max_tokens=6,
    )
    assert answer.choices[0].message.content == "kkkkkk"


def test_penalties_keep_it_from_saying_the_same(client: openai.OpenAI) -> None:
    letters = {str(ord(letter) - 33): 95 for letter in "abcdefgh"}
    answer = client.completions.create(
        model=MODEL,
        prompt="Sing.",
        logit_bias=letters,
        presence_penalty=2,
        frequency_penalty=2,
        temperature=0,
        max_tokens=8,
        extra_body={"repetition_penalty": 2.0},
    )
    assert sorted(answer.choices[0].text) == list("abcdefgh")


def test_it_gets_the_logprobs_of_a_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="Once", max_tokens=5, temperature=0, logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.top_logprobs is not None
    assert len(logprobs.tokens) == len(logprobs.top_logprobs) == 5
    assert all(
        token in top for token, top in zip(logprobs.tokens, logprobs.top_logprobs, strict=True)
    )


def test_it_streams_the_logprobs_of_a_chat(client: openai.OpenAI) -> None:
    chunks = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Count."}],
        max_tokens=9,
        logprobs=True,
        top_logprobs=2,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    told = [
        one
        for chunk in chunks
        if (logprobs := chunk.choices[0].logprobs) is not None
        for one in logprobs.content or ()
    ]
    assert [len(one.top_logprobs) for one in told] == [2] * 9
    assert all(one.logprob <= one.top_logprobs[0].logprob for one in told)
