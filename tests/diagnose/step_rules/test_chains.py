"""How a finding came about: cause, first failure and impact, each with its moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.diagnose.step_rules.states import EventKind, LogBuilder, calm, described, found, lasting
from tests.diagnose.step_rules.test_blocks import cascade, churn
from tests.diagnose.step_rules.test_waiting import parked, set_aside


def stages(log: LogBuilder, rule: str) -> dict[str, tuple[int | None, str]]:
    return {link.stage: (link.ts, link.sentence) for link in found(log, rule).chain}


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        ("deferred-slot-exhaustion", set_aside),
        ("connector-parked-deadlock", parked),
        ("priority-recompute-churn", churn),
        ("preempt-zero-reclaim-cascade", cascade),
    ],
)
def test_a_chain_goes_from_the_cause_to_the_impact(
    rule: str, make: Callable[[], LogBuilder]
) -> None:
    finding = found(make(), rule)
    cause, first, impact = finding.chain
    assert (cause.stage, first.stage, impact.stage) == ("cause", "first_failure", "impact")
    assert cause.sentence == finding.cause.sentence
    assert first.ts == finding.span.opened_ts
    assert impact.ts is not None
    assert impact.ts >= first.ts
    assert cause.ts is None or cause.ts <= first.ts


def test_slots_are_full_since_somebody_was_set_aside_first() -> None:
    log = set_aside()
    told = stages(log, "deferred-slot-exhaustion")
    skipped = [row["ts"] for row in log.rows["request_events"] if row["kind"] == EventKind.skipped]
    assert told["cause"][0] == min(skipped)
    assert "4 running and 28 set aside took all 32 slots" in told["first_failure"][1]
    assert told["impact"][1].startswith("30 requests waited")


def test_loads_hold_each_other_since_the_first_that_nobody_went_on_with() -> None:
    log = calm(described(kv_connector="OffloadConnector"))
    loaded = []
    for request in range(3):
        log.arrived(request).event(EventKind.load_finished, request)
        loaded.append(log.now)
        calm(log, 1)
        if request == 0:
            log.admitted(request)
    own = {
        "running": 0, "waiting": 2, "tokens": 0, "free": 5, "num_loaded_not_promoted": 2,
        "num_blocks_waiting": 58, "head_request": 1, "head_blocks_needed": 9,
    }  # fmt: skip
    told = stages(lasting(log, 31, **own), "connector-parked-deadlock")
    assert told["cause"][0] == loaded[1]
    assert "the head needed 9 blocks, 5 were free, 58 held" in told["first_failure"][1]


def test_churn_begins_when_the_first_taker_has_come() -> None:
    log = churn()
    told = stages(log, "priority-recompute-churn")
    evictions = [row for row in log.rows["request_events"] if row["kind"] == EventKind.preempted]
    taker = evictions[0]["beneficiary"]
    came = {row["request"]: row["ts"] for row in log.rows["request_arrivals"]}
    assert told["cause"][0] == came[taker]
    assert "12 evictions by priority" in told["impact"][1]


def test_a_cascade_begins_with_the_first_eviction_that_freed_nothing() -> None:
    told = stages(cascade(), "preempt-zero-reclaim-cascade")
    assert told["cause"][0] is None
    assert "request 10 was evicted: 0 blocks freed" in told["first_failure"][1]
    assert "3 evictions in 1 step freed nothing" in told["impact"][1]
