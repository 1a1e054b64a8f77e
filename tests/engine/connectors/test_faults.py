"""Faults on demand: what `--inject` says, and how often it comes true."""

from __future__ import annotations

import pytest

from engine.config import ConfigError
from engine.connectors.faults import Fate, Fault, FaultPlan


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("load=delay:2.5", Fault(stage="load", kind="delay", delay_seconds=2.5)),
        ("lookup=stall", Fault(stage="lookup", kind="stall")),
        ("ack=lose:n=3", Fault(stage="ack", kind="lose", count=3)),
        (
            "load=fail_half:p=0.2,seed=7",
            Fault(stage="load", kind="fail_half", probability=0.2, seed=7),
        ),
        (
            "save=delay:0.5,p=0.5",
            Fault(stage="save", kind="delay", delay_seconds=0.5, probability=0.5),
        ),
    ],
)
def test_a_fault_is_what_it_says(text: str, fault: Fault) -> None:
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("load", "STAGE=KIND"),
        ("send=lose", "lookup, load, save, ack"),
        ("load=explode", "delay, stall, lose, fail"),
        ("save=fail_half", "use save=fail"),
        ("load=delay", "needs its seconds"),
        ("load=delay:-1", "above 0"),
        ("load=delay:inf", "above 0"),
        ("load=fail:p=2", "between 0 and 1"),
        ("load=fail:n=0", "n is 1 or more"),
        ("load=fail:n=1.5", "'1.5' is no number"),
        ("load=fail:often", "'often' is no number"),
        ("load=fail:rate=1", "not one of p, n, seed"),
        ("load=fail:3", "not one of p, n, seed"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Fault.parse(text)


def fates(*texts: str, count: int = 200) -> list[Fate]:
    plan = FaultPlan([Fault.parse(text) for text in texts])
    return [plan.draw("load") for _ in range(count)]


def test_another_stage_is_left_alone() -> None:
    assert set(fates("save=fail")) == {Fate()}


def test_a_count_is_the_most_there_are() -> None:
    assert [fate.end for fate in fates("load=fail:n=2", count=4)] == ["fail", "fail", None, None]


def test_a_probability_is_about_that_often_and_the_seed_says_when() -> None:
    drawn = fates("load=lose:p=0.25,seed=3", count=400)
    assert 60 < sum(fate.end == "lose" for fate in drawn) < 140
    assert drawn == fates("load=lose:p=0.25,seed=3", count=400)
    assert drawn != fates("load=lose:p=0.25,seed=4", count=400)


def test_delays_add_up_and_the_first_other_fault_decides() -> None:
    (fate,) = fates("load=delay:1", "load=fail", "load=stall", "load=delay:2", count=1)
    assert fate == Fate(delay_seconds=3.0, end="fail")
