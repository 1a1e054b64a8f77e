"""A vLLM of which not all can be recorded is recorded without it, and runs as ever."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.telemetry.sources.vllm.features_off import BARE, choices
from tests.telemetry.sources.vllm.real_findings import printed_by

TELLS = {
    "request_events": {"arrived", "finished"},
    "preemptions": {"preempted"},
    "allocation_failures": {"admitted", "resumed"},
    "connector_stages": {"load_finished", "load_failed"},
    "encoder": {"item_scheduled", "item_evicted"},
    "grammar": {"grammar_started", "grammar_ready"},
    "drafts": {"drafts_proposed"},
    "pauses": {"paused", "unpaused", "prefix_cache_reset"},
}
"""Events that only one feature tells."""


@functools.cache
def found() -> dict[str, Any]:
    return printed_by("features_off.py")


@pytest.mark.parametrize("off", choices())
def test_vllm_does_what_it_does_without_us(off: str) -> None:
    assert found()[off]["is_unchanged"]


@pytest.mark.parametrize("off", choices())
def test_nothing_that_is_left_stumbles_over_what_is_off(off: str) -> None:
    assert found()[off]["errors"] == []
    assert found()[off]["num_steps"] == found()["trace_context"]["num_steps"] > 0


@pytest.mark.parametrize("off", TELLS)
def test_what_is_off_is_not_told_and_else_it_is(off: str) -> None:
    assert not TELLS[off] & set(found()[off]["kinds"])
    assert TELLS[off] <= set(found()["trace_context"]["kinds"])


def test_of_the_bare_steps_only_the_engine_itself_is_told() -> None:
    assert set(found()[BARE]["kinds"]) <= {"engine_started", "engine_stopped", "throttled"}
