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
