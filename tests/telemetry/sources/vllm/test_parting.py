"""An engine core says good-bye before it takes itself apart, and ends whatever comes of that."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from telemetry.sources.vllm.parting import part_in_time


def core_class() -> Any:
    """Returns a class like vLLM's engine core, which writes down in which order it ends."""

    class EngineCore:
        def __init__(self, *, is_recorded: bool = True) -> None:
            self.said: list[str] = []
            hooks = SimpleNamespace(
                before_shutdown=lambda: self.said.append("stopped"),
                failed=lambda what: self.said.append(f"failed: {what}"),
            )
            self.scheduler = SimpleNamespace(_stepscope=hooks if is_recorded else None)

        def shutdown(self) -> str:
            self.said.append("taken apart")
            return "done"

    return EngineCore


@pytest.fixture
def core() -> Any:
    cls = core_class()
    part_in_time(cls)
    return cls


def ended_by(engine: Any, error: BaseException) -> list[str]:
    """Ends an engine as vLLM does: in the `finally` of its loop."""
    with contextlib.suppress(type(error)):
        try:
            raise error
        finally:
            engine.shutdown()
    said: list[str] = engine.said
    return said


def test_good_bye_comes_before_the_end(core: Any) -> None:
    engine = core()
    assert engine.shutdown() == "done"
    assert engine.said == ["stopped", "taken apart"]


@pytest.mark.parametrize("error", [SystemExit(0), SystemExit(1), KeyboardInterrupt()])
def test_who_was_asked_to_end_has_stopped(core: Any, error: BaseException) -> None:
    assert ended_by(core(), error) == ["stopped", "taken apart"]


def test_an_error_is_told_by_its_kind_and_not_in_its_words(core: Any) -> None:
    said = ended_by(core(), RuntimeError("cannot compute 'the user’s prompt'"))
    assert said == ["failed: RuntimeError", "taken apart"]


def test_an_engine_that_is_not_recorded_just_ends(core: Any) -> None:
    engine = core(is_recorded=False)
    assert engine.shutdown() == "done"
    assert engine.said == ["taken apart"]


def test_an_engine_without_a_scheduler_yet_just_ends(core: Any) -> None:
    engine = core()
    del engine.scheduler
    assert engine.shutdown() == "done"


def test_a_fault_of_ours_does_not_keep_it_from_ending(
    core: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = core()
    engine.scheduler._stepscope = SimpleNamespace()
    assert engine.shutdown() == "done"
    assert "the end of the engine was not recorded" in caplog.text


def test_a_class_is_wrapped_once(core: Any) -> None:
    once = core.shutdown
    part_in_time(core)
    assert core.shutdown is once
