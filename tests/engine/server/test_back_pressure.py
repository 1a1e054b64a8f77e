"""More requests than there is room for, and clients that do not read what they asked for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import openai
import pytest

from engine.settings import EngineSettings
from engine.workload.client import RequestResult, send_request
from engine.workload.report import LoadReport
from telemetry.recorder import ListRecorder
from telemetry.records import RequestArrived, RequestFinished
from telemetry.vocabulary import FinishReason
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import SECONDS, wait_until
from tests.engine.server.test_admin import Served

LIMIT = 2
ASK = {"prompt": [1, 2], "max_tokens": 4}


@pytest.fixture
def full() -> Iterator[Served]:
    """A paused engine with as many requests as it may have."""
    recorder = ListRecorder()
    engine = EngineSettings(scripted_step_seconds=0, max_num_queued_reqs=LIMIT)
    with (
        serving_in_process(make_core(recorder), engine=engine) as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as http,
    ):
        served = Served(url, recorder, http)
        served.post("/pause", mode="keep")
        requests = [served.ask(name) for name in ("first", "second")]
        wait_until(lambda: http.get("/live").json()["num_open_requests"] == LIMIT)
        yield served
        served.post("/resume")
        for request in requests:
            request.finish_reasons()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/completions", ASK), ("/v1/completions", ASK | {"prompt": [[1], [2]]})]
)
def test_one_too_many_is_told_to_come_again(
    full: Served, path: str, body: dict[str, Any], stream: bool
) -> None:
    answer = full.http.post(path, json=body | {"stream": stream})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("queue_full", "server_error")
    assert "--max-num-queued-reqs 2" in error["message"]


def test_more_answers_than_there_may_ever_be_are_not_worth_a_second_try(full: Served) -> None:
    answer = full.http.post("/v1/completions", json=ASK | {"prompt": [[1]] * (LIMIT + 1)})
    assert (answer.status_code, "retry-after" in answer.headers) == (400, False)
    assert "ask for fewer at once" in answer.json()["error"]["message"]


def test_whoever_was_refused_is_served_once_there_is_room(full: Served) -> None:
    assert full.http.post("/v1/completions", json=ASK).status_code == 503
    full.post("/resume")
    wait_until(lambda: full.http.get("/live").json()["num_open_requests"] == 0)
    assert full.http.post("/v1/completions", json=ASK).status_code == 200


def test_each_refusal_is_recorded_with_its_reason(full: Served) -> None:
    full.http.post("/v1/completions", json=ASK | {"prompt": [[1], [2, 3]]})
    wait_until(lambda: len(full.ends()) == 2)
    arrived = [e for e in full.recorder.events if isinstance(e, RequestArrived)][LIMIT:]
    ended = [e for e in full.recorder.events if isinstance(e, RequestFinished)]
    assert [event.num_prompt_tokens for event in arrived] == [1, 2]
    assert [event.request for event in ended] == [event.request for event in arrived]
    assert {event.reason for event in ended} == {FinishReason.refused}
    assert all("--max-num-queued-reqs 2" in (event.text or "") for event in ended)


def test_the_load_generator_tells_what_was_refused(full: Served) -> None:
    async def send() -> RequestResult:
        async with httpx.AsyncClient(base_url=full.url, trust_env=False) as http:
            return await send_request(http, ASK | {"stream": True}, num_prompt_tokens=2)

    result = asyncio.run(send())
    report = LoadReport.of([result], duration_seconds=1.0)
    ((reason, count),) = report.failures
    assert (report.num_refused, count) == (1, 1)
    assert reason.startswith("HTTP 503: 2 requests are under way")


def test_openais_client_comes_again_by_itself(full: Served) -> None:
    statuses: list[int] = []

    def make_room(response: httpx2.Response) -> None:
        statuses.append(response.status_code)
        full.post("/resume")
        wait_until(lambda: full.http.get("/live").json()["num_open_requests"] < LIMIT)

    http = httpx2.Client(trust_env=False, event_hooks={"response": [make_room]})
    with openai.OpenAI(
        base_url=f"{full.url}/v1", api_key="none", max_retries=1, http_client=http
    ) as client:
        answer = client.completions.create(model="tiny-llama", prompt=[1], max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert statuses == [503, 200]


def test_openais_client_raises_when_it_does_not_come_again(full: Served) -> None:
    http = httpx2.Client(trust_env=False)
    with (
        openai.OpenAI(
            base_url=f"{full.url}/v1", api_key="none", max_retries=0, http_client=http
        ) as client,
        pytest.raises(openai.InternalServerError, match="try again later"),
    ):
        client.completions.create(model="tiny-llama", prompt=[1])


def test_a_client_that_does_not_read_keeps_nobody_waiting_and_loses_nothing() -> None:
    """The engine ends the request long before the client has read it; nothing of it is lost."""
    recorder = ListRecorder()
    core = make_core(recorder, num_usable_blocks=2000, step_seconds=0.0005)
    body = b'{"prompt": [[1], [2], [3], [4]], "max_tokens": 1000, "stream": true}'
    with (
        serving_in_process(core, send_buffer_bytes=4096) as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as http,
        _slow_client(url, body) as slow,
    ):
        wait_until(lambda: sum(isinstance(e, RequestFinished) for e in recorder.events) == 4)
        assert http.post("/v1/completions", json=ASK).status_code == 200
        assert http.get("/live").json()["num_open_requests"] == 4
        received = b""
        while b"data: [DONE]" not in received:
            received += slow.recv(1 << 16)
        assert received.count(b'"finish_reason": "length"') == 4
        wait_until(lambda: http.get("/live").json()["num_open_requests"] == 0)


def test_a_client_that_goes_without_reading_is_forgotten() -> None:
    core = make_core(num_usable_blocks=2000, step_seconds=0.0005)
    body = b'{"prompt": [[1], [2], [3], [4]], "max_tokens": 1000, "stream": true}'
    with (
        serving_in_process(core, send_buffer_bytes=4096) as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as http,
    ):
        with _slow_client(url, body):
            wait_until(lambda: http.get("/live").json()["num_open_requests"] == 4)
        wait_until(lambda: http.get("/live").json()["num_open_requests"] == 0)
        assert http.post("/v1/completions", json=ASK).status_code == 200


@contextlib.contextmanager
def _slow_client(url: str, body: bytes) -> Iterator[socket.socket]:
    """Yields a connection that has asked, with next to no room for an answer."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    with socket.socket() as connection:
        connection.settimeout(SECONDS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((host, port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        yield connection


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_nobody_in_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="max_num_queued_reqs is"):
        EngineSettings(max_num_queued_reqs=limit)
