"""What can be recorded is found out from the classes that a vLLM has."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from telemetry.sources.vllm.compatibility import (
    TESTED_VERSIONS,
    TITLES,
    Compatibility,
    Features,
    compatibility_of,
)
from telemetry.sources.vllm.needs import CLASSES, NEEDS
from tests.telemetry.sources.vllm.fake_vllm import HOOKS, FakeScheduler, fake_class, fake_classes

VERSION = f"{TESTED_VERSIONS[-1]}.0"


def looked_at(
    scheduler: type = FakeScheduler, version: str | None = VERSION, **others: type | None
) -> Compatibility:
    """Returns what is found in a vLLM that has it all, but for this scheduler and these classes."""
    return compatibility_of(scheduler, version, HOOKS, {**fake_classes(), **others})


def test_of_a_vllm_that_has_it_all_everything_is_recorded() -> None:
    found = looked_at()
    assert (found.features, found.lacking, found.warning()) == (Features(), {}, None)


def test_every_feature_has_its_needs_and_its_words() -> None:
    names = set(Features.__dataclass_fields__)
    assert names == set(NEEDS) == set(TITLES)


def test_every_class_that_is_needed_has_its_place() -> None:
    owners = {owner for needs in NEEDS.values() for owner in needs}
    assert owners | {hook.owner for hook in HOOKS} == {*CLASSES, "Scheduler"}


# -------------------------------------------------------------------------- what a hook belongs to


def test_a_hooked_method_that_is_gone_costs_its_own_feature_alone() -> None:
    found = looked_at(fake_class("Scheduler", without=("_preempt_request",)))
    assert found.lacking == {"preemptions": "no Scheduler._preempt_request()"}
    assert not found.features.preemptions
    assert found.features.step_rows


class OtherNames(FakeScheduler):
    def _preempt_request(self, victim: Any, when: float) -> None: ...


def test_a_hooked_method_with_other_parameters_is_named_with_those_it_lacks() -> None:
    assert looked_at(OtherNames).lacking == {
        "preemptions": "Scheduler._preempt_request() has no request"
    }


class OtherOrder(FakeScheduler):
    def finish_requests(self, finished_status: Any, request_ids: Any) -> None: ...


def test_a_hooked_method_with_another_order_is_named() -> None:
    assert looked_at(OtherOrder).lacking == {
        "request_events": "Scheduler.finish_requests() has its parameters in another order"
    }


class OneMore(FakeScheduler):
    def set_pause_state(self, pause_state: Any, reason: str = "") -> None: ...


def test_a_parameter_that_a_hook_cannot_take_is_named() -> None:
    assert looked_at(OneMore).lacking == {
        "pauses": "Scheduler.set_pause_state() has reason as well"
    }


class MorePreemption(FakeScheduler):
    def _preempt_request(self, request: Any, timestamp: float, reason: str = "") -> None: ...


def test_a_parameter_that_a_hook_lets_pass_does_no_harm() -> None:
    assert looked_at(MorePreemption).lacking == {}


class PassesOn(FakeScheduler):
    def schedule(self, *args: Any, **kwargs: Any) -> Any: ...


def test_a_method_that_passes_everything_on_is_taken_as_it_is() -> None:
    assert looked_at(PassesOn).lacking == {}


class Static(FakeScheduler):
    @staticmethod
    def set_pause_state(pause_state: Any) -> None: ...


def test_a_static_method_has_no_self_to_leave_out() -> None:
    assert looked_at(Static).lacking == {}


# ------------------------------------------------------------------------------ what is looked up


def test_an_attribute_that_is_set_nowhere_costs_its_feature() -> None:
    class Untraced(fake_class("Request", without=("trace_headers",))):  # type: ignore[misc]
        def note(self) -> None:
            self.other = self.trace_headers

    assert looked_at(Request=Untraced).lacking == {"trace_context": "no Request.trace_headers"}


def test_an_attribute_set_behind_a_decorator_is_seen() -> None:
    class Decorated(FakeScheduler):
        @functools.wraps(FakeScheduler.__init__)
        def __init__(self, *args: Any) -> None:
            FakeScheduler.__init__(self)

    assert looked_at(Decorated).lacking == {}


def test_an_attribute_that_is_only_declared_counts() -> None:
    class Declared(fake_class("Request", without=("trace_headers",))):  # type: ignore[misc]
        trace_headers: dict[str, str]

    assert looked_at(Request=Declared).lacking == {}


def test_a_method_that_is_called_must_take_what_it_is_given() -> None:
    class Asked(fake_class("KVCacheManager")):  # type: ignore[misc]
        def get_block_ids(self, request: str) -> None: ...

    assert looked_at(KVCacheManager=Asked).lacking == {
        "connector_stages": "KVCacheManager.get_block_ids() has no request_id"
    }


def test_a_class_that_is_gone_costs_the_features_that_need_it() -> None:
    found = looked_at(KVConnectorBase_V1=None, KVConnectorOutput=None)
    assert found.lacking == {
        "connector_stages": "no class KVConnectorOutput, no class KVConnectorBase_V1"
    }


def test_what_no_step_can_do_without_ends_it_all() -> None:
    found = looked_at(fake_class("Scheduler", without=("kv_holding_waiting",)))
    assert not found.can_record
    assert not any(getattr(found.features, name) for name in NEEDS)
    assert found.lacking["step_rows"] == "no Scheduler.kv_holding_waiting"


# --------------------------------------------------------------------------------- what is said


def test_one_warning_says_what_is_lacking_and_why() -> None:
    assert looked_at(OneMore).warning() == (
        f"vLLM {VERSION} is recorded in part, without pauses and cache resets "
        f"(Scheduler.set_pause_state() has reason as well) (tested: {', '.join(TESTED_VERSIONS)})"
    )


def test_a_scheduler_that_cannot_be_recorded_is_named() -> None:
    warning = looked_at(object).warning()
    assert warning is not None
    assert warning.startswith(f"vLLM {VERSION} with object cannot be recorded")
    assert "no Scheduler.schedule()" in warning


@pytest.mark.parametrize("version", ["0.31.2", "0.33.0", "1.0.0", "0.320", "", None])
def test_a_version_that_was_not_tested_is_recorded_and_said_to_be(version: str | None) -> None:
    found = looked_at(version=version)
    assert found.features == Features()
    assert not found.is_tested
    assert "has not been tested" in (found.warning() or "")


@pytest.mark.parametrize("suffix", [".0", ".3", ".0+cpu", ".1rc2.dev3+g1a2b3c"])
def test_builds_of_a_tested_version_are_tested(suffix: str) -> None:
    assert looked_at(version=TESTED_VERSIONS[-1] + suffix).is_tested
