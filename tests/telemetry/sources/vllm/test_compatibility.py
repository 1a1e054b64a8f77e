"""What can be recorded is found out from the classes that a vLLM has."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from telemetry.sources.vllm.compatibility import (
    TESTED_VERSIONS,
    TITLES,
    Features,
    compatibility_of,
)
from telemetry.sources.vllm.needs import NEEDS
from tests.telemetry.sources.vllm.fake_vllm import FakeScheduler, fake_class, fake_classes

VERSION = f"{TESTED_VERSIONS[-1]}.0"


def test_of_a_vllm_that_has_it_all_everything_is_recorded() -> None:
    found = compatibility_of(FakeScheduler, VERSION, fake_classes())
    assert (found.features, found.lacking, found.warning()) == (Features(), {}, None)


def test_every_feature_has_its_needs_and_its_words() -> None:
    names = set(Features.__dataclass_fields__)
    assert names == set(NEEDS) == set(TITLES)


class Renamed(FakeScheduler):
    _preempt_request = None


def test_a_method_that_is_gone_costs_its_own_feature_alone() -> None:
    found = compatibility_of(Renamed, VERSION, fake_classes())
    assert found.lacking == {"preemptions": "no Scheduler._preempt_request()"}
    assert not found.features.preemptions
    assert found.features.step_rows


class OtherParameters(FakeScheduler):
    def _preempt_request(self, victim: Any, when: float) -> None: ...


def test_a_method_with_other_parameters_is_named_with_those_that_it_lacks() -> None:
    found = compatibility_of(OtherParameters, VERSION, fake_classes())
    assert found.lacking == {
        "preemptions": "Scheduler._preempt_request() has no request, timestamp"
    }


class PassesOn(FakeScheduler):
    def _preempt_request(self, *args: Any, **kwargs: Any) -> None: ...


def test_a_method_that_passes_everything_on_is_taken_as_it_is() -> None:
    assert compatibility_of(PassesOn, VERSION, fake_classes()).lacking == {}


class MorePreemption(FakeScheduler):
    def _preempt_request(self, request: Any, timestamp: float, reason: str = "") -> None: ...


def test_a_parameter_more_does_no_harm() -> None:
    assert compatibility_of(MorePreemption, VERSION, fake_classes()).lacking == {}


def test_an_attribute_that_is_set_nowhere_costs_its_feature() -> None:
    class Untraced(fake_class("Request", without=("trace_headers",))):  # type: ignore[misc]
        def note(self) -> None:
            self.other = self.trace_headers

    found = compatibility_of(FakeScheduler, VERSION, {**fake_classes(), "Request": Untraced})
    assert found.lacking == {"trace_context": "no Request.trace_headers"}


def test_an_attribute_set_behind_a_decorator_is_seen() -> None:
    class Decorated(FakeScheduler):
        @functools.wraps(FakeScheduler.__init__)
        def __init__(self, *args: Any) -> None:
            FakeScheduler.__init__(self)

    assert compatibility_of(Decorated, VERSION, fake_classes()).lacking == {}


def test_a_class_that_is_gone_costs_the_features_that_need_it() -> None:
    found = compatibility_of(FakeScheduler, VERSION, {**fake_classes(), "KVConnectorOutput": None})
    assert found.lacking == {"connector_stages": "no class KVConnectorOutput"}


def test_without_step_rows_nothing_is_recorded() -> None:
    found = compatibility_of(object, VERSION, fake_classes())
    assert not found.can_record
    assert not any(getattr(found.features, name) for name in NEEDS)


def test_one_warning_says_what_is_lacking_and_why() -> None:
    warning = compatibility_of(OtherParameters, VERSION, fake_classes()).warning()
    assert warning == (
        f"vLLM {VERSION} is recorded in part, without preemptions (Scheduler._preempt_request() "
        f"has no request, timestamp) (tested: {', '.join(TESTED_VERSIONS)})"
    )


def test_a_scheduler_that_cannot_be_recorded_is_named() -> None:
    warning = compatibility_of(object, VERSION, fake_classes()).warning()
    assert warning is not None
    assert warning.startswith(f"vLLM {VERSION} with object cannot be recorded")
    assert "no Scheduler.schedule()" in warning


@pytest.mark.parametrize("version", ["0.31.2", "0.33.0", "1.0.0", None])
def test_a_version_that_was_not_tested_is_recorded_and_said_to_be(version: str | None) -> None:
    found = compatibility_of(FakeScheduler, version, fake_classes())
    assert found.features == Features()
    assert not found.is_tested
    assert "has not been tested" in (found.warning() or "")


@pytest.mark.parametrize("suffix", [".0", ".3", ".0+cpu", ".1rc2.dev3+g1a2b3c"])
def test_builds_of_a_tested_version_are_tested(suffix: str) -> None:
    found = compatibility_of(FakeScheduler, TESTED_VERSIONS[-1] + suffix, fake_classes())
    assert found.is_tested
