"""What OpenAI's client leaves behind when it gives up: an end in the record, and no block held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import openai
import pytest

from engine.core import EngineCore
from telemetry.recorder import ListRecorder
from telemetry.records import RequestFinished
from telemetry.vocabulary import EventKind, FinishReason
from tests.engine.server.in_process import make_core, serving_in_process
from tests.engine.server.server_process import SECONDS, wait_until

ENDLESS = {"model": "tiny-llama", "prompt": [1, 2, 3], "max_tokens": 1500}


@dataclass
class Watched:
    """A slow engine whose record and blocks are at hand, and OpenAI's client of it."""

    client: openai.OpenAI
    core: EngineCore
    recorder: ListRecorder

    def wait_for_abort(self) -> None:
        """Waits until the request has ended because its caller went, and its blocks are free."""
        wait_until(lambda: any(isinstance(e, RequestFinished) for e in self.recorder.events))
        ended = [e for e in self.recorder.events if isinstance(e, RequestFinished)]
        assert [event.reason for event in ended] == [FinishReason.abort_client]
        assert EventKind.client_gone in [event.kind for event in self.recorder.events]
        wait_until(lambda: not self.core.scheduler.requests)
        assert self.core.scheduler.kv.pool.num_free == self.core.config.cache.num_usable_blocks


@pytest.fixture
def watched() -> Iterator[Watched]:
    recorder = ListRecorder()
    core = make_core(recorder, num_usable_blocks=500, step_seconds=0.01)
    with (
        serving_in_process(core) as url,
        openai.OpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            timeout=SECONDS,
            max_retries=0,
            http_client=httpx2.Client(trust_env=False),
        ) as client,
    ):
        yield Watched(client, core, recorder)


def test_a_stream_that_is_closed(watched: Watched) -> None:
    stream = watched.client.completions.create(**ENDLESS, stream=True)  # type: ignore[call-overload]
    next(iter(stream))
    stream.close()
    watched.wait_for_abort()


def test_an_answer_that_does_not_come_in_time(watched: Watched) -> None:
    hurried = watched.client.with_options(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        hurried.completions.create(**ENDLESS)  # type: ignore[call-overload]
    watched.wait_for_abort()
