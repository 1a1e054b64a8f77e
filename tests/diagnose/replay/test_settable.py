"""Changes are written as settings are, and an impossible one says what is possible."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from diagnose.replay import Workload
from diagnose.replay.settable import SETTINGS, ChangeError, changed, parse_setting, value_now
from tests.diagnose.replay.loads import recording, settings, storm, workload_of


@pytest.fixture(scope="module")
def load() -> Workload:
    calls = [
        replace(call, priority=index % 2, adapter=f"a{index % 3}", shared=str(index % 2))
        for index, call in enumerate(storm(Random(1), rate=2.0, seconds=15.0))
    ]
    calls = [replace(call, num_shared_tokens=64) for call in calls]
    return workload_of(recording(settings(max_loras=3), calls))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_num_seqs=11", ("max_num_seqs", 11)),
        ("--max-num-seqs=11", ("max_num_seqs", 11)),
        ("num-gpu-blocks-override=1,024", ("num_gpu_blocks", 1024)),
        ("watermark=0.05", ("watermark", 0.05)),
        ("enable_prefix_caching=off", ("enable_prefix_caching", False)),
        ("max_loras=none", ("max_loras", None)),
        ("scheduling-policy=priority", ("policy", "priority")),
    ],
)
def test_a_setting_is_read(text: str, expected: tuple[str, object]) -> None:
    assert parse_setting(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("swap_space=4", "'swap_space' cannot be changed: choose max_num_seqs, "),
        ("max_num_seqs", "has no value: write max_num_seqs=VALUE"),
        ("max_num_seqs=many", "max_num_seqs is 'many': it takes 1 or more"),
        ("enable_chunked_prefill=maybe", "it takes on or off"),
    ],
)
def test_what_is_no_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(ChangeError, match=message):
        parse_setting(text)


def test_every_setting_has_a_value_now(load: Workload) -> None:
    assert {name: value_now(load, name) is not ... for name in SETTINGS} == dict.fromkeys(
        SETTINGS, True
    )


@pytest.mark.parametrize(
    ("without", "left"),
    [
        ("adapter=a1", lambda r: r.adapter != "a1"),
        ("priority=1", lambda r: r.priority != 1),
        ("prompt>=100", lambda r: r.num_prompt_tokens < 100),
        ("output<=150", lambda r: r.num_output_tokens > 150),
    ],
)
def test_traffic_is_left_out(load: Workload, without: str, left: object) -> None:
    assert callable(left)
    kept = changed(load, {"without": (without,)})
    assert kept.requests == tuple(request for request in load.requests if left(request))
    assert 0 < kept.num_requests < load.num_requests


def test_a_prompt_class_is_left_out_with_all_that_begin_alike(load: Workload) -> None:
    """They share their beginning with request 0, and its adapter."""
    kept = changed(load, {"without": ("prefix=0",)})
    assert [r.number for r in kept.requests] == [r.number for r in load.requests if r.number % 6]


def test_a_filter_that_fits_nobody_is_refused(load: Workload) -> None:
    with pytest.raises(ChangeError, match="no recorded request is such"):
        changed(load, {"without": ("adapter=unknown",)})


def test_a_filter_that_is_none_is_refused_with_those_that_are(load: Workload) -> None:
    with pytest.raises(ChangeError, match="it takes adapter=NAME"):
        changed(load, {"without": ("colour=red",)})


def test_drafts_that_were_never_recorded_cannot_be_had(load: Workload) -> None:
    with pytest.raises(ChangeError, match="the record has no drafts"):
        changed(load, {"num_speculative_tokens": 3})


def test_a_connector_that_is_not_there_cannot_be_slower(load: Workload) -> None:
    with pytest.raises(ValueError, match="this engine has no KV connector"):
        changed(load, {"connector_latency": 2.0})


def test_equal_priorities_are_one(load: Workload) -> None:
    equal = changed(load, {"priorities": "equal"})
    assert {request.priority for request in equal.requests} == {0}
