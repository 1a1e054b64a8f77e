from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core import EngineCore, NewRequest
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from telemetry.recorder import ListRecorder
from telemetry.records import RequestArrived, RequestFinished, RunClock
from telemetry.vocabulary import EventKind, FinishReason
from tests.engine.builders import config


class Engine:
    """A core with a small pool, its record, and whatever its requests were given."""

    def __init__(self, *, num_usable_blocks: int = 100, eos: tuple[int, ...] = ()) -> None:
        self.recorder = ListRecorder()
        self.core = EngineCore(
            config(num_usable_blocks=num_usable_blocks, max_model_len=256),
            ScriptedRunner(lambda request_id, n: n),
            recorder=self.recorder,
            clock=RunClock.start().now,
            model_name="scripted",
            eos_token_ids=eos,
        )
        self.tokens: dict[str, list[int]] = {}
        self.ends: dict[str, FinishReason] = {}

    def add(
        self, name: str, *, prompt: int = 4, max_tokens: int = 4, **sampling: bool
    ) -> str | None:
        start = 1000 * (len(self.tokens) + 1)
        self.tokens[name] = []
        refusal = self.core.add_request(
            NewRequest(
                request_id=name,
                prompt_token_ids=range(start, start + prompt),
                sampling=SamplingParams(max_tokens=max_tokens, **sampling),  # type: ignore[arg-type]
            )
        )
        return None if refusal is None else refusal.error

    def run(self) -> None:
        for _ in range(1000):
            if not self.core.has_work():
                return
            self.step()
        raise AssertionError("the engine does not come to rest")

    def step(self) -> None:
        for result in self.core.step()[1]:
            self.tokens[result.request_id] += result.new_token_ids
            if result.finish_reason is not None:
                self.ends[result.request_id] = result.finish_reason

    def kinds(self) -> list[EventKind]:
        return [EventKind(event.kind) for event in self.recorder.events]

    def finishes(self) -> list[RequestFinished]:
        return [event for event in self.recorder.events if isinstance(event, RequestFinished)]


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_requests_are_numbered_as_they_come(engine: Engine) -> None:
    engine.add("a")
    engine.add("b")
    arrived = [event for event in engine.recorder.events if isinstance(event, RequestArrived)]
    assert [(event.request, event.request_id) for event in arrived] == [(0, "a"), (1, "b")]


def test_every_request_runs_to_its_end_under_pressure() -> None:
    engine = Engine(num_usable_blocks=12)
    for index in range(8):
        engine.add(f"r{index}", prompt=8, max_tokens=12)
    engine.run()
    assert engine.core.scheduler.num_preemptions > 0
    assert all(tokens == list(range(12)) for tokens in engine.tokens.values())
    assert len(engine.finishes()) == 8
    assert engine.core.snapshot().num_preemptions == engine.core.scheduler.num_preemptions
    engine.core.scheduler.check_integrity()


def test_what_can_never_fit_arrives_and_is_refused(engine: Engine) -> None:
    error = engine.add("big", prompt=200, max_tokens=100)
    assert error is not None
    assert "max_model_len is 256" in error
    (finish,) = engine.finishes()
    assert (finish.reason, finish.text) == (FinishReason.refused, error)
    assert engine.kinds() == [EventKind.arrived, EventKind.finished]
    assert not engine.core.has_work()


def test_a_client_that_goes_is_told_apart_from_its_end(engine: Engine) -> None:
    engine.add("a", max_tokens=50)
    engine.step()
    engine.core.abort(["a"], FinishReason.abort_client)
    assert engine.kinds()[-2:] == [EventKind.client_gone, EventKind.finished]
    assert engine.finishes()[0].reason == FinishReason.abort_client
    engine.run()


def test_an_abort_of_what_has_ended_changes_nothing(engine: Engine) -> None:
    engine.add("a")
    engine.run()
    before = list(engine.recorder.events)
    engine.core.abort(["a", "never"], FinishReason.abort_client)
    assert engine.recorder.events == before


def test_the_first_eos_ends_a_text_and_so_do_the_others() -> None:
    for eos in ((2, 99), (99, 2)):
        engine = Engine(eos=eos)
        engine.add("a", max_tokens=9)
        engine.add("deaf", max_tokens=9, ignore_eos=True)
        engine.run()
        assert engine.tokens == {"a": [0, 1, 2], "deaf": list(range(9))}
        assert engine.ends == {"a": FinishReason.stop, "deaf": FinishReason.length}


def test_an_id_may_come_again_once_its_request_has_ended(engine: Engine) -> None:
    engine.add("a")
    engine.run()
    engine.add("a")
    engine.run()
    assert len(engine.finishes()) == 2


def test_an_oversize_request_that_is_let_in_waits_and_can_be_aborted() -> None:
    engine = Engine(num_usable_blocks=4)
    engine.core.config = replace(engine.core.config, allow_oversize=True)
    assert engine.add("big", prompt=40) is None
    for _ in range(3):
        engine.step()
    assert engine.core.scheduler.num_waiting == 1
    engine.core.abort_all(FinishReason.abort_api)
    engine.run()
    assert [finish.reason for finish in engine.finishes()] == [FinishReason.abort_api]


def test_after_a_failed_step_every_open_request_has_its_end(engine: Engine) -> None:
    engine.add("a", max_tokens=50)
    engine.add("b", max_tokens=50)
    engine.step()
    engine.core.fail_all("out of memory")
    assert [(f.request, f.reason, f.text) for f in engine.finishes()] == [
        (0, FinishReason.error, "out of memory"),
        (1, FinishReason.error, "out of memory"),
    ]
