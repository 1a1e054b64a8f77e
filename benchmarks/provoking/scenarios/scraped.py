"""Runs of other files that are judged by their metrics pages alone, where those can decide."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.provoking.recording import RecordedLog
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.scenarios import capacity, healthy, lookalikes, preemption, queueing
from diagnose.reading import QueryLog

Provoke = Callable[[Attempt], RecordedLog]


def _scraped(
    run: Provoke,
    expected: str | None = None,
    silent: tuple[str, ...] = (),
    shown: tuple[str, ...] = (),
) -> Scenario:
    def provoke(attempt: Attempt) -> QueryLog:
        return run(attempt).scraped()

    return Scenario(
        name=f"scraped-{run.__name__.replace('_', '-')}",
        source="scripted",
        expected=expected,
        provoke=provoke,
        silent=silent,
        shown=shown,
    )


SCENARIOS = (
    _scraped(preemption.burst_of_requests, "kv-preemption-pressure", ("kv-block-leak",)),
    _scraped(queueing.too_few_slots, "seq-slot-limit", ("admission-deadlock", "worker-hang")),
    _scraped(capacity.refused_without_a_reason, "admission-deadlock", ("seq-slot-limit",)),
    _scraped(healthy.light_traffic),
    _scraped(healthy.busy),
    _scraped(healthy.full_pool_without_a_queue, shown=("guard-kv-high-healthy",)),
    _scraped(
        lookalikes.a_restart_with_the_same_pool,
        silent=("kv-preemption-pressure", "kv-pool-shrunk-by-reserve"),
        shown=("guard-counter-reset",),
    ),
)
