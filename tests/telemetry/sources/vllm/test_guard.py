"""The guard lets nothing of ours reach vLLM, and gives up after a few errors."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from telemetry.sources.vllm.guard import MAX_ERRORS, Guard


class Told:
    """What a guard told."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.ends: list[str] = []
        self.guard = Guard(self.errors.append, self.ends.append)


@pytest.fixture
def told() -> Told:
    return Told()


def fails(*_: Any) -> None:
    raise ValueError("the prompt was: secret")


def test_a_hook_that_fails_raises_nothing(told: Told) -> None:
    told.guard.protect(fails)()
    assert told.errors == ["fails of the vLLM recorder failed with ValueError"]


def test_a_method_answers_though_its_listener_fails(told: Told) -> None:
    listening = told.guard.listen(lambda number: number + 1, fails)
    assert listening(1) == 2


def test_a_listener_hears_answer_and_arguments(told: Told) -> None:
    heard: list[Any] = []
    told.guard.listen(lambda number: number + 1, lambda *args: heard.append(args))(1)
    assert heard == [(2, 1)]


def test_after_some_errors_nothing_is_called_any_more(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def counts() -> None:
        calls.append(1)
        raise ValueError

    protected = told.guard.protect(counts)
    with caplog.at_level(logging.WARNING, "stepscope"):
        for _ in range(2 * MAX_ERRORS):
            protected()
    assert len(calls) == MAX_ERRORS
    assert len(told.ends) == len(caplog.records) == 1


def test_words_of_an_error_are_not_repeated(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stepscope"):
        for _ in range(MAX_ERRORS):
            told.guard.protect(fails)()
    assert "secret" not in " ".join([*told.errors, *told.ends, caplog.text])


def test_telling_an_error_may_fail_as_well() -> None:
    Guard(fails, fails).protect(fails)()
