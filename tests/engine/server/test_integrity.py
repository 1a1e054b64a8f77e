"""The check of a served engine's books: who may have it done, and what comes back."""

from __future__ import annotations

import httpx
import pytest
from fastapi import Request

from engine.server.access import is_from_this_machine
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import ServerProcess, serving
from tests.engine.server.test_lifecycle import SLOW, OpenRequest

PATH = "/stepscope/integrity"


def test_an_engine_at_work_is_checked_between_two_steps_and_goes_on() -> None:
    with serving(*SLOW, "--max-model-len", "4096") as server, server.client() as http:
        request = OpenRequest(server, max_tokens=150)
        request.wait_for_tokens()
        answer = http.post(PATH).raise_for_status().json()
        assert (answer["error"], answer["report"]["problems"]) == (None, [])
        assert answer["report"]["num_running"] == 1
        assert answer["report"]["num_running_blocks"] == answer["report"]["kv"]["num_references"]
        assert answer["report"]["kv"]["num_blocks_rehashed"] is not None
        assert answer["duration_ns"] > 0
        assert answer["pid"] == server.engine_pid
        assert '"finish_reason": "length"' in request.end()


def test_for_callers_elsewhere_the_path_does_not_exist(tiny_server: ServerProcess) -> None:
    with tiny_server.client() as http:
        assert http.post(PATH).status_code == 200
        from_elsewhere = http.post(PATH, headers={"x-forwarded-for": "203.0.113.5"})
        unknown = http.post("/stepscope/nothing")
    assert from_elsewhere.status_code == unknown.status_code == 404
    told = from_elsewhere.json()["error"]["message"]
    assert told.replace("integrity", "nothing") == unknown.json()["error"]["message"]


@pytest.mark.parametrize(
    ("client", "server", "is_local"),
    [
        (("127.0.0.1", 40000), ("127.0.0.1", 8000), True),
        (("::1", 40000), ("::1", 8000), True),
        (("10.0.0.5", 40000), ("10.0.0.5", 8000), True),
        (("10.0.0.6", 40000), ("10.0.0.5", 8000), False),
        (("fe80::2", 40000), ("fe80::1", 8000), False),
        (("somebody", 40000), ("10.0.0.5", 8000), False),
        (None, ("10.0.0.5", 8000), False),
    ],
)
def test_local_is_a_loopback_address_or_the_servers_own(
    client: tuple[str, int] | None, server: tuple[str, int], is_local: bool
) -> None:
    scope = {"type": "http", "client": client, "server": server, "headers": []}
    assert is_from_this_machine(Request(scope)) is is_local


def test_broken_books_are_told_and_the_engine_goes_on() -> None:
    core = make_core()
    core.scheduler.kv.pool.num_free_cached += 1
    with serving_in_process(core) as url, _client(url) as http:
        answer = http.post(PATH).raise_for_status().json()
        (problem,) = answer["report"]["problems"]
        assert problem.startswith("cached free blocks and counter differ")
        assert http.post("/v1/completions", json={"prompt": [1]}).status_code == 200


def test_books_that_cannot_be_read_do_not_end_the_engine() -> None:
    core = make_core()
    core.scheduler.kv.pool._index = None  # type: ignore[assignment]
    with serving_in_process(core) as url, _client(url) as http:
        answer = http.post(PATH).raise_for_status().json()
        assert answer["report"] is None
        assert answer["error"].startswith("AttributeError")
        assert http.get("/health").status_code == 200


def _client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=30, trust_env=False)
