"""What an operator can do to a served engine, what callers see of it, and what is recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from engine.server.settings import ServerSettings
from telemetry.recorder import ListRecorder
from telemetry.records import RequestFinished, RequestPreempted
from telemetry.vocabulary import EventKind, FinishReason, PreemptionCause
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import SECONDS, wait_until

LIVE_TIMEOUT_SECONDS = 0.2
MAX_TOKENS = 60


@dataclass
class Served:
    """A slow scripted engine, its record, and a client of its own machine."""

    url: str
    recorder: ListRecorder
    http: httpx.Client

    def post(self, path: str, **query: Any) -> Any:
        return self.http.post(path, params=query).raise_for_status().json()

    def ends(self) -> list[FinishReason]:
        return [e.reason for e in self.recorder.events if isinstance(e, RequestFinished)]

    def kinds(self) -> list[tuple[EventKind, str | None]]:
        """Returns what happened to the engine itself."""
        told = (EventKind.paused, EventKind.unpaused, EventKind.prefix_cache_reset)
        return [(e.kind, e.text) for e in self.recorder.events if e.kind in told]

    def ask(self, request_id: str = "one", **body: Any) -> Asked:
        return Asked(self.url, request_id, {"prompt": [1, 2], "max_tokens": MAX_TOKENS} | body)


@dataclass
class Asked:
    """A streaming request that another thread reads to its end."""

    url: str
    request_id: str
    body: dict[str, Any]
    chunks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with httpx.stream(
            "POST",
            f"{self.url}/v1/completions",
            json=self.body | {"stream": True, "return_token_ids": True},
            headers={"x-request-id": self.request_id},
            timeout=SECONDS,
            trust_env=False,
        ) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    self.chunks.append(json.loads(line.removeprefix("data: ")))

    def wait_for_tokens(self) -> Asked:
        wait_until(lambda: len(self.chunks) > 0)
        return self

    @property
    def num_tokens(self) -> int:
        """Tokens that have come."""
        choices = [choice for chunk in list(self.chunks) for choice in chunk["choices"]]
        return sum(len(choice["token_ids"]) for choice in choices)

    def finish_reasons(self) -> list[str]:
        """Returns how its choices ended, once all have."""
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        choices = [choice for chunk in self.chunks for choice in chunk["choices"]]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


@pytest.fixture
def served() -> Iterator[Served]:
    recorder = ListRecorder()
    core = make_core(recorder, step_seconds=0.005)
    settings = ServerSettings(live_timeout_seconds=LIVE_TIMEOUT_SECONDS)
    with (
        serving_in_process(core, settings=settings) as url,
        httpx.Client(base_url=url, timeout=SECONDS, trust_env=False) as http,
    ):
        yield Served(url, recorder, http)


def test_keep_freezes_a_stream_and_resume_lets_it_end(served: Served) -> None:
    request = served.ask().wait_for_tokens()
    assert served.post("/pause", mode="keep") == {"status": "paused"}
    last_step = served.http.get("/live").json()["last_step"]
    wait_until(lambda: served.http.get("/live").json()["last_step"] >= last_step + 10)
    num_tokens = request.num_tokens
    assert served.http.get("/is_paused").json() == {"is_paused": True, "pause": "paused_all"}
    assert served.post("/resume") == {"status": "resumed"}
    assert request.finish_reasons() == ["length"]
    assert num_tokens < MAX_TOKENS == request.num_tokens
    assert served.http.get("/is_paused").json()["is_paused"] is False
    assert served.kinds() == [(EventKind.paused, "PAUSED_ALL"), (EventKind.unpaused, None)]


def test_a_paused_engine_is_not_stuck(served: Served) -> None:
    request = served.ask().wait_for_tokens()
    served.post("/pause", mode="keep")
    started = served.http.get("/live").json()["last_step"]
    num_steps = int(LIVE_TIMEOUT_SECONDS / 0.05) * 2  # an engine without work looks every 50 ms
    wait_until(lambda: served.http.get("/live").json()["last_step"] >= started + num_steps)
    live = served.http.get("/live")
    assert (live.status_code, live.json()["pause"]) == (200, "paused_all")
    served.post("/resume")
    assert request.finish_reasons() == ["length"]


def test_a_plain_pause_ends_what_is_under_way_and_lets_nobody_in(served: Served) -> None:
    running = served.ask("running").wait_for_tokens()
    served.post("/pause")
    assert running.finish_reasons() == ["abort"]
    later = served.ask("later")
    wait_until(lambda: served.http.get("/live").json()["num_open_requests"] == 1)
    served.post("/resume")
    assert later.finish_reasons() == ["length"]
    assert served.ends() == [FinishReason.abort_api, FinishReason.length]
    assert served.kinds()[:2] == [
        (EventKind.paused, "PAUSED_NEW"),
        (EventKind.prefix_cache_reset, None),
    ]


def test_new_lets_the_running_go_on(served: Served) -> None:
    running = served.ask("running").wait_for_tokens()
    served.post("/pause", mode="new")
    waiting = served.ask("waiting")
    assert running.finish_reasons() == ["length"]
    assert waiting.chunks == []
    served.post("/resume")
    assert waiting.finish_reasons() == ["length"]


def test_wait_returns_when_the_last_has_ended(served: Served) -> None:
    running = served.ask().wait_for_tokens()
    served.post("/pause", mode="wait")
    assert served.ends() == [FinishReason.length]
    assert running.finish_reasons() == ["length"]
    served.post("/resume")


def test_a_cache_whose_blocks_are_in_use_is_not_reset(served: Served) -> None:
    request = served.ask().wait_for_tokens()
    assert served.post("/reset_prefix_cache") == {"success": False}
    assert request.finish_reasons() == ["length"]
    assert served.post("/reset_prefix_cache") == {"success": True}
    assert served.kinds() == [
        (EventKind.prefix_cache_reset, "refused: blocks are in use"),
        (EventKind.prefix_cache_reset, None),
    ]


def test_a_reset_of_the_running_evicts_them_and_costs_no_token(served: Served) -> None:
    request = served.ask().wait_for_tokens()
    assert served.post("/reset_prefix_cache", reset_running_requests=True) == {"success": True}
    assert request.finish_reasons() == ["length"]
    assert request.num_tokens == MAX_TOKENS
    causes = [e.cause for e in served.recorder.events if isinstance(e, RequestPreempted)]
    assert causes == [PreemptionCause.cache_reset]


def test_an_external_cache_is_not_claimed_to_be_reset(served: Served) -> None:
    answer = served.http.post("/reset_prefix_cache", params={"reset_external": True})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "reset_external")


@pytest.mark.parametrize("name", ["several", "cmpl-several"])
def test_an_abort_by_id_ends_all_of_a_request_and_nobody_else(served: Served, name: str) -> None:
    other = served.ask("other").wait_for_tokens()
    several = served.ask("several", prompt=[[1], [2], [3]]).wait_for_tokens()
    answer = served.http.post("/abort_requests", json={"request_ids": [name, "unknown"]})
    assert answer.json() == {"status": "aborted", "aborted": 3}
    assert several.finish_reasons() == ["abort"] * 3
    assert other.finish_reasons() == ["length"]
    assert sorted(served.ends()) == [FinishReason.length, *[FinishReason.abort_api] * 3]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"request_ids": []}'])
def test_an_abort_without_ids_ends_everything(served: Served, body: bytes) -> None:
    requests = [served.ask(name).wait_for_tokens() for name in ("a", "b")]
    answer = served.http.post("/abort_requests", content=body)
    assert answer.json() == {"status": "aborted", "aborted": 2}
    assert [request.finish_reasons() for request in requests] == [["abort"]] * 2


@pytest.mark.parametrize(
    ("path", "body", "blames"),
    [
        ("/pause?mode=sideways", b"", "mode"),
        ("/pause?clear_cache=perhaps", b"", "clear_cache"),
        ("/reset_prefix_cache?reset_running_requests=2", b"", "reset_running_requests"),
        ("/abort_requests", b"nonsense", None),
        ("/abort_requests", b"[" * 100_000, None),
        ("/abort_requests", b'"all"', "request_ids"),
        ("/abort_requests", b'{"request_ids": "one"}', "request_ids"),
        ("/abort_requests", b'{"request_ids": [1]}', "request_ids"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    served: Served, path: str, body: bytes, blames: str | None
) -> None:
    request = served.ask().wait_for_tokens()
    answer = served.http.post(path, content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, blames)
    assert request.finish_reasons() == ["length"]
    assert served.kinds() == []
