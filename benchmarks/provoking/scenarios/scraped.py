"""Simulated runs judged by their metrics pages alone: faults that metrics can decide, and none.

Named after the run that they are of. Where metrics cannot tell a fault from another, or from
nothing, the run is not here: they lack who waits for what.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.provoking.recording import RecordedLog
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.scenarios import (
    adapters,
    capacity,
    clients,
    connectors,
    decoding,
    devices,
    encoders,
    grammars,
    healthy,
)
from diagnose.reading import QueryLog

DECIDABLE = (
    "oversized-prompt",
    "oversized-by-the-null-block",
    "refused-without-a-reason",
    "smaller-pool-after-a-restart",
    "set-aside-in-the-slots",
    "step-without-end",
    "step-that-came-back",
    "drafts-that-are-wrong",
    "drafts-that-cost-more",
    "more-adapters-than-fit",
    "adapter-that-starves",
    "slow-tokenizer",
)
"""Runs whose fault a page shows."""
CALM = (
    "adapters-with-a-slot-each",
    "quick-tokenizer",
    "slow-prompts",
    "aborts-that-arrive",
    "loads-that-pay",
    "late-but-there",
    "idle-for-long",
    "items-that-fit",
    "schemas-that-come-again",
    *(scenario.name for scenario in healthy.SCENARIOS[:4]),
)
"""Runs in which nothing is wrong."""
_MODULES = (
    *(adapters, capacity, clients, connectors, decoding, devices, encoders, grammars, healthy),
)


def _all() -> dict[str, Scenario]:
    return {scenario.name: scenario for module in _MODULES for scenario in module.SCENARIOS}


def _scraped(scenario: Scenario) -> Scenario:
    """Returns a scenario of the same run without its record."""

    def provoke(attempt: Attempt) -> QueryLog:
        log = scenario.provoke(attempt)
        assert isinstance(log, RecordedLog)
        return log.scraped()

    return Scenario(
        name=f"{scenario.name}-scraped",
        source="scripted",
        expected=scenario.expected,
        provoke=provoke,
        silent=scenario.silent,
    )


def _named(names: Iterable[str]) -> tuple[Scenario, ...]:
    known = _all()
    return tuple(_scraped(known[name]) for name in names)


SCENARIOS = _named((*DECIDABLE, *CALM))
