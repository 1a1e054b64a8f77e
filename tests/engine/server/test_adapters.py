"""Adapters through the API: chosen by name, loaded and unloaded while the engine runs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import httpx2
import openai
import pytest
from transformers import AutoModelForCausalLM

from engine.runner.tiny_llama import tiny_llama
from tests.engine.lora.builders import ALL_LINEAR, ATTENTION, save_adapter
from tests.engine.runner.builders import reference_tokens
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import SECONDS, ServerProcess, serving

PROMPT = [72, 101, 108, 108, 111]
OPTIONS: dict[str, dict[str, Any]] = {
    "sql": ATTENTION,
    "chat": ALL_LINEAR,
    "legal": {"r": 16, "lora_alpha": 16, "target_modules": ["o_proj", "down_proj"]},
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What PEFT says to the prompt, by adapter."""
    base = AutoModelForCausalLM.from_pretrained(tiny_llama()).eval()
    directory = tmp_path_factory.getbasetemp() / "adapters"
    said = {"tiny-llama": reference_tokens(base, PROMPT, 8)[0]}
    for seed, (name, options) in enumerate(OPTIONS.items()):
        adapted = save_adapter(base, directory / name, seed, **options)
        said[name] = reference_tokens(adapted, PROMPT, 8)[0]
    return said


@pytest.fixture(scope="module")
def shelf(tokens: dict[str, list[int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "adapters"


@pytest.fixture(scope="module")
def server(shelf: Path) -> Iterator[ServerProcess]:
    """A server with one slot, and room for one adapter in host memory."""
    with serving(
        *("--num-gpu-blocks-override", "64", "--max-model-len", "900", "--enable-lora"),
        *("--lora-modules", f"sql={shelf / 'sql'}", f'{{"name": "chat", "path": "{shelf}/chat"}}'),
    ) as running:
        yield running


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def complete(http: httpx.Client, model: str, **fields: Any) -> httpx.Response:
    asked = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}
    return http.post("/v1/completions", json={"model": model, "prompt": PROMPT, **asked, **fields})


def token_ids(response: httpx.Response) -> list[int]:
    found: list[int] = response.raise_for_status().json()["choices"][0]["token_ids"]
    return found


def load(http: httpx.Client, name: str, path: Path, **fields: Any) -> httpx.Response:
    body = {"lora_name": name, "lora_path": str(path), **fields}
    return http.post("/v1/load_lora_adapter", json=body)


def unload(http: httpx.Client, name: str) -> httpx.Response:
    return http.post("/v1/unload_lora_adapter", json={"lora_name": name})


def test_the_name_of_an_adapter_is_the_name_of_a_model(
    server: ServerProcess, tokens: dict[str, list[int]]
) -> None:
    with openai.OpenAI(
        base_url=f"{server.url}/v1",
        api_key="none",
        timeout=SECONDS,
        max_retries=0,
        http_client=httpx2.Client(trust_env=False),
    ) as client:
        for name in ("sql", "tiny-llama", "chat"):
            answer = client.completions.create(
                model=name,
                prompt=PROMPT,
                temperature=0,
                max_tokens=8,
                extra_body={"ignore_eos": True, "return_token_ids": True},
            )
            assert answer.model == name
            assert answer.choices[0].token_ids == tokens[name]  # type: ignore[attr-defined]
        chat = client.chat.completions.create(
            model="sql", messages=[{"role": "user", "content": "Hi"}], max_tokens=3
        )
        assert chat.model == "sql"
        cards = {card.id: card for card in client.models.list().data}
        assert cards["sql"].parent == "tiny-llama"  # type: ignore[attr-defined]
        assert client.models.retrieve("chat").root.endswith("/chat")  # type: ignore[attr-defined]
        with pytest.raises(openai.NotFoundError, match="'poems' is not served here") as raised:
            client.completions.create(model="poems", prompt="x")
        assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


def test_adapters_asked_for_at_once_take_turns_and_stay_themselves(
    http: httpx.Client, tokens: dict[str, list[int]]
) -> None:
    names = ["sql", "chat", "tiny-llama"] * 4
    with ThreadPoolExecutor(12) as pool:
        said = list(pool.map(lambda name: token_ids(complete(http, name)), names))
    assert said == [tokens[name] for name in names]


def test_an_adapter_is_loaded_used_and_unloaded(
    http: httpx.Client, shelf: Path, tokens: dict[str, list[int]]
) -> None:
    assert load(http, "legal", shelf / "legal").text.startswith("Success: ")
    assert token_ids(complete(http, "legal")) == tokens["legal"]
    assert unload(http, "legal").status_code == 200
    assert complete(http, "legal").status_code == 404


def test_other_weights_under_the_same_name_say_something_else(
    http: httpx.Client, shelf: Path, tokens: dict[str, list[int]]
) -> None:
    load(http, "mine", shelf / "legal").raise_for_status()
    longer = [*PROMPT, *range(32)]
    before = token_ids(complete(http, "mine", prompt=longer))
    assert load(http, "mine", shelf / "sql").status_code == 400
    load(http, "mine", shelf / "sql", load_inplace=True).raise_for_status()
    after = token_ids(complete(http, "mine", prompt=longer))
    assert before != after == token_ids(complete(http, "sql", prompt=longer))
    assert token_ids(complete(http, "mine")) == tokens["sql"]
    unload(http, "mine").raise_for_status()


def test_a_request_outlives_the_name_of_its_adapter(http: httpx.Client, shelf: Path) -> None:
    load(http, "brief", shelf / "legal").raise_for_status()
    whole = token_ids(complete(http, "brief", max_tokens=200))
    started = threading.Event()

    def read() -> str:
        asked = {"model": "brief", "prompt": PROMPT, "max_tokens": 200, "temperature": 0}
        said = []
        with http.stream(
            "POST", "/v1/completions", json={**asked, "ignore_eos": True, "stream": True}
        ) as stream:
            for line in stream.iter_lines():
                said.append(line)
                started.set()
        return "\n".join(said)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert started.wait(SECONDS)
        unload(http, "brief").raise_for_status()
        assert '"finish_reason": "length"' in reading.result()
    assert len(whole) == 200


@pytest.mark.parametrize("loss", ["gone", "changed"])
def test_an_adapter_that_cannot_be_read_again_fails_its_request_alone(
    loss: str, http: httpx.Client, shelf: Path, tmp_path: Path, tokens: dict[str, list[int]]
) -> None:
    copied = shutil.copytree(shelf / "legal", tmp_path / "copy")
    load(http, loss, copied).raise_for_status()
    token_ids(complete(http, "sql"))  # takes its place in host memory
    shutil.rmtree(copied)
    if loss == "changed":
        shutil.copytree(shelf / "chat", copied)
    refused = complete(http, loss)
    complaint = "cannot be read" if loss == "gone" else "has changed on disk"
    assert complaint in refused.json()["error"]["message"]
    assert refused.status_code == 400
    assert token_ids(complete(http, "chat")) == tokens["chat"]
    unload(http, loss).raise_for_status()


@pytest.mark.parametrize(
    ("path", "body", "status", "complaint"),
    [
        ("load", {"lora_name": "x", "lora_path": "/nowhere"}, 400, "cannot be read"),
        ("load", {"lora_name": "sql", "lora_path": "/nowhere"}, 400, "'sql' is loaded"),
        ("load", {"lora_name": "tiny-llama", "lora_path": "/x"}, 400, "the model's own name"),
        ("load", {"lora_name": "a b", "lora_path": "/x"}, 400, "must have 1 to 128 characters"),
        ("load", {"lora_name": "x"}, 400, "lora_path: Field required"),
        ("load", {"lora_name": "x", "lora_path": "/x", "y": 1}, 400, "y: Extra inputs"),
        ("load", [], 400, "the body"),
        ("unload", {"lora_name": "poems"}, 404, "'poems' is not loaded"),
        ("unload", {}, 400, "lora_name: Field required"),
    ],
)
def test_what_cannot_be_done_is_said(
    path: str, body: object, status: int, complaint: str, http: httpx.Client
) -> None:
    answer = http.post(f"/v1/{path}_lora_adapter", json=body)
    assert answer.status_code == status
    assert complaint in answer.json()["error"]["message"]


def test_a_web_page_may_not_load_adapters(http: httpx.Client) -> None:
    body = {"lora_name": "x", "lora_path": "/x"}
    answer = http.post("/v1/load_lora_adapter", json=body, headers={"origin": "http://evil"})
    assert answer.status_code == 404


def test_the_metrics_page_tells_how_many_a_step_may_have(http: httpx.Client) -> None:
    assert 'vllm:lora_requests_info{max_lora="1"' in http.get("/metrics").text


def test_an_engine_without_adapters_says_what_is_missing() -> None:
    with serving_in_process(make_core()) as url, httpx.Client(base_url=url) as http:
        answer = load(http, "x", Path("/x"))
    assert answer.status_code == 400
    assert "--enable-lora" in answer.json()["error"]["message"]
