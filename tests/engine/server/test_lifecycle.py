"""How a server lives and dies: two processes, one fate. Only the runner is scripted."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.server.server_process import (
    ServerProcess,
    children_of,
    is_running,
    kill,
    launch,
    serving,
    wait_until,
)

SLOW = ("--scripted-step-seconds", "0.01")
TEN_SECONDS = 10.0
LONG = {"prompt": [1, 2, 3], "max_tokens": 4000, "ignore_eos": True, "stream": True}


class OpenRequest:
    """A streaming request that another thread reads to its end."""

    def __init__(self, server: ServerProcess, **body: Any) -> None:
        self._text = ""
        self._thread = threading.Thread(target=self._read, args=(server.url, {**LONG, **body}))
        self._thread.start()

    def _read(self, url: str, body: dict[str, Any]) -> None:
        try:
            with httpx.stream(
                "POST", f"{url}/v1/completions", json=body, timeout=30, trust_env=False
            ) as answer:
                for text in answer.iter_text():
                    self._text += text
        except httpx.HTTPError:
            self._text += "connection lost"

    def wait_for_tokens(self) -> None:
        wait_until(lambda: "data: " in self._text)

    def end(self) -> str:
        """Returns all that came, once the stream is over."""
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self._text


def error_in(text: str) -> str:
    """Returns the message of the error event of a stream that closed in order."""
    *_, error, closing, _ = text.split("\n\n")
    assert closing == "data: [DONE]"
    message: str = json.loads(error.removeprefix("data: "))["error"]["message"]
    return message


def test_sigterm_ends_everything_within_ten_seconds() -> None:
    with serving(*SLOW) as server:
        request = OpenRequest(server)
        request.wait_for_tokens()
        started = time.monotonic()
        family = children_of(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(TEN_SECONDS) == 0
        wait_until(lambda: not any(is_running(pid) for pid in family))
        assert time.monotonic() - started < TEN_SECONDS
        assert error_in(request.end()) == "the server is shutting down"


def test_a_second_signal_does_no_harm() -> None:
    with serving(*SLOW) as server:
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(TEN_SECONDS) == 0


def test_sigterm_while_the_model_loads_ends_it() -> None:
    process = launch()
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on ")
        wait_until(lambda: len(children_of(process.pid)) >= 2)
        family = children_of(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TEN_SECONDS) == 0
        wait_until(lambda: not any(is_running(pid) for pid in family))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def test_the_engine_does_not_outlive_a_killed_api_process() -> None:
    with serving(*SLOW) as server:
        request = OpenRequest(server)
        request.wait_for_tokens()
        engine = server.engine_pid
        kill(server.process.pid)
        wait_until(lambda: not is_running(engine))
        request.end()


def test_a_killed_engine_is_told_to_all_and_ends_the_server() -> None:
    with serving(*SLOW) as server, server.client() as http:
        request = OpenRequest(server)
        request.wait_for_tokens()
        kill(server.engine_pid)
        wait_until(lambda: http.get("/health").status_code == 503)
        assert "died" in http.get("/health").json()["error"]
        refused = http.post("/v1/completions", json={"prompt": [1]})
        assert refused.status_code == 503
        assert "the engine process has died" in error_in(request.end())
        assert server.process.wait(TEN_SECONDS) == 1


def test_live_fails_while_an_engine_with_work_stands_still() -> None:
    with serving(*SLOW, "--live-timeout", "0.3") as server, server.client() as http:
        request = OpenRequest(server)
        request.wait_for_tokens()
        engine = server.engine_pid
        os.kill(engine, signal.SIGSTOP)
        try:
            wait_until(lambda: http.get("/live").status_code == 503)
            assert http.get("/live").json()["status"] == "stuck"
            assert http.get("/health").status_code == 200
        finally:
            os.kill(engine, signal.SIGCONT)
        wait_until(lambda: http.get("/live").status_code == 200)
        kill(engine)
        request.end()


def test_oversize_is_let_in_when_asked_and_does_not_spin() -> None:
    with serving(
        *("--scripted-step-seconds", "0", "--num-gpu-blocks-override", "8", "--allow-oversize")
    ) as server:
        request = OpenRequest(server, prompt=[1] * 200, max_tokens=10)
        wait_until(lambda: server.metric("vllm:num_requests_waiting") == 1)
        with server.client() as http:
            wait_until(lambda: http.get("/live").json()["last_step"] is not None)
            started, first = time.monotonic(), http.get("/live").json()["last_step"]
            wait_until(lambda: http.get("/live").json()["last_step"] >= first + 5)
            num_steps = http.get("/live").json()["last_step"] - first
            assert num_steps <= (time.monotonic() - started) / 0.05 + 2
        server.process.send_signal(signal.SIGTERM)
        request.end()


def test_each_finished_step_is_told_to_the_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "steps"
    os.mkfifo(pipe)
    told: list[int] = []

    def read() -> None:
        with pipe.open() as lines:
            told.extend(int(line) for line in lines)

    reader = threading.Thread(target=read)
    reader.start()
    with (
        serving("--scripted-step-seconds", "0", "--step-pipe", str(pipe)) as server,
        server.client() as http,
    ):
        http.post("/v1/completions", json={"prompt": [1], "max_tokens": 20})
    reader.join(10)
    assert told[:20] == list(range(20))
    assert told == list(range(len(told)))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--block-size", "0"), "block_size is 0"),
        (("--max-num-active-seqs", "999"), "max_num_active_seqs is 999"),
        (("--live-timeout", "0"), "--live-timeout is 0"),
        (("--max-model-len", "5000", "--no-enable-chunked-prefill"), "without chunked prefill"),
    ],
)
def test_a_setting_that_cannot_be_used_is_exit_code_two(flags: tuple[str, ...], says: str) -> None:
    process = launch("--scripted-step-seconds", "0", *flags)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 2, output
    assert says in output
    assert "Traceback" not in output


def test_a_port_that_is_taken_is_exit_code_two() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = launch("--scripted-step-seconds", "0", "--port", str(port))
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 2, output
    assert f"port {port}" in output


def test_a_model_without_tokenizer_takes_ids_only() -> None:
    with serving("--scripted-step-seconds", "0") as server, server.client() as http:
        assert http.post("/v1/completions", json={"prompt": "text"}).status_code == 400
        by_ids = http.post("/v1/completions", json={"prompt": [1]})
        assert by_ids.json()["usage"]["completion_tokens"] == 16
