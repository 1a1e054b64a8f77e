from __future__ import annotations

import asyncio

import pytest

from engine.workload.plan import PlannedRequest, PromptPart, WorkloadError
from engine.workload.replay import ReplayOptions, replay
from engine.workload.report import LoadReport
from tests.engine.workload.fake_api import FakeApi


def plan(num_requests: int = 4) -> list[PlannedRequest]:
    return [
        PlannedRequest(
            offset_seconds=0.002 * index,
            prompt=(PromptPart((0, index), 6),),
            max_tokens=3 + index,
            priority=index if index else None,
        )
        for index in range(num_requests)
    ]


def run(api: FakeApi, requests: list[PlannedRequest], **options: object) -> LoadReport:
    with api.serving() as url:
        return asyncio.run(replay(url, requests, ReplayOptions(**options)))  # type: ignore[arg-type]


def test_every_planned_request_is_sent_as_planned() -> None:
    api = FakeApi()
    report = run(api, plan(), seed=5)
    assert report.is_complete
    bodies = sorted(api.bodies, key=lambda body: body["max_tokens"])
    assert [body["prompt"] for body in bodies] == [
        request.token_ids(vocab_size=50, seed=5) for request in plan()
    ]
    assert [body["max_tokens"] for body in bodies] == [3, 4, 5, 6]
    assert [body.get("priority") for body in bodies] == [None, 1, 2, 3]
    assert all(body["ignore_eos"] and body["stream"] for body in bodies)


def test_the_report_adds_up() -> None:
    report = run(FakeApi(), plan())
    assert (report.num_requests, report.num_answered) == (4, 4)
    assert (report.num_prompt_tokens, report.num_output_tokens) == (24, 18)
    assert report.ttft is not None
    assert report.itl is not None
    assert (report.ttft.num_samples, report.itl.num_samples) == (4, 14)
    assert report.ttft.p50 <= report.ttft.p99 <= report.ttft.max
    assert report.failures == ()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("refuse", "HTTP 400: too long"),
        ("error", "error in the stream: it broke"),
        ("cut", "the stream ended before the request did"),
        ("abort", "finished with 'abort'"),
        ("garbage", "the stream is not what the OpenAI API sends"),
    ],
)
def test_an_answer_that_is_not_whole_is_a_failure_with_its_reason(how: str, reason: str) -> None:
    report = run(FakeApi(misbehave={1: how}), plan())
    assert not report.is_complete
    assert report.num_answered == 3
    ((said, count),) = report.failures
    assert said.startswith(reason)
    assert count == 1


def test_closed_loop_never_has_more_than_its_slots_under_way() -> None:
    api = FakeApi()
    assert run(api, plan(12), concurrency=3).is_complete
    assert api.most_at_once <= 3


def test_an_api_that_is_not_there_is_named() -> None:
    with pytest.raises(WorkloadError, match="does not answer"):
        asyncio.run(replay("http://127.0.0.1:9", plan(), ReplayOptions()))


def test_a_url_that_is_none_is_named() -> None:
    with pytest.raises(WorkloadError, match="--url is"):
        asyncio.run(replay("http://[::1", plan(), ReplayOptions()))


def test_a_silence_that_may_not_be_is_refused() -> None:
    with pytest.raises(WorkloadError, match="--timeout is -3"):
        ReplayOptions(timeout_seconds=-3)


def test_a_vocabulary_that_nobody_tells_has_to_be_given() -> None:
    with pytest.raises(WorkloadError, match="--vocab"):
        run(FakeApi(vocab_size=None), plan())
    assert run(FakeApi(vocab_size=None), plan(), vocab_size=9).is_complete


def test_a_model_that_is_not_served_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"'other' is not served: fake"):
        run(FakeApi(), plan(), model="other")


def test_nothing_measured_is_none_and_not_zero() -> None:
    report = run(FakeApi(misbehave={0: "refuse"}), plan(1))
    assert (report.ttft, report.itl, report.e2e) == (None, None, None)
    assert report.to_json()["ttft"] is None
