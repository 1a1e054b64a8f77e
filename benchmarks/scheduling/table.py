"""What the comparison found, for programs and for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from benchmarks.scheduling.comparison import Result, Timing, ratio_interval
from benchmarks.scheduling.peer import Peer

GOALS = {
    ("decode", 16): 0.10,
    ("decode", 64): 0.10,
    ("decode", 256): 0.03,
    ("decode", 1024): 0.03,
    ("closed_loop_ample", 256): 0.10,
    ("closed_loop_scarce", 256): 0.10,
}
"""Most that we may take of vLLM's time, by workload and running requests."""

HEAD = (
    f"{'workload':<18} {'running':>7} {'cache':>5}  {'side':<15} {'schedule':>9} {'update':>8} "
    f"{'p50':>9} {'p99':>9} {'mean':>9} {'arrival':>8}  ours beside it (95 % interval)"
)


def json_row(result: Result, theirs: Peer | None, recorded: Peer | None) -> dict[str, object]:
    """Returns a workload's medians, µs a step; null for a side that did not run."""
    load, ours = result.workload, result.timings[0].step_us
    their_us = _step_us(result, theirs)
    row: dict[str, object] = {
        "workload": load.name,
        "running": load.running,
        "prefix_caching": load.prefix_caching,
        "ours_us": round(ours, 3),
        "vllm_us": None if their_us is None else round(their_us, 3),
        "ratio": None if their_us is None else round(ours / their_us, 5),
    }
    if (recorded_us := _step_us(result, recorded)) is not None:
        row["recorded_us"] = round(recorded_us, 3)
    return row


def lines(result: Result) -> Iterator[str]:
    """Gives a workload's lines: one a side, and what the steps did."""
    load, ours = result.workload, result.timings[0]
    label = f"{load.name:<18} {load.running:>7,} {'on' if load.prefix_caching else 'off':>5}"
    for timing in result.timings:
        beside = _beside(result, ours, timing)
        yield f"{label}  {timing.name:<15} {_times(timing)}  {beside}".rstrip()
        label = " " * len(label)
    preempted = result.total("num_preempted")
    if preempted:
        steps = "; ".join(f"{t.name} {t.preempting_us:,.0f}" for t in result.timings)
        yield (
            f"{label}  {preempted:,} preemptions in {result.num_steps:,} steps, the same on all "
            f"sides; µs of those that preempt: {steps}"
        )


def _times(timing: Timing) -> str:
    steps = timing.steps_us
    p50, p99 = np.percentile(steps, [50, 99])
    arrival = "" if timing.arrival_us is None else f"{timing.arrival_us:.1f}"
    return (
        f"{timing.schedule_us:>9,.1f} {timing.update_us:>8,.1f} "
        f"{p50:>9,.1f} {p99:>9,.1f} {steps.mean():>9,.1f} {arrival:>8}"
    )


def _beside(result: Result, ours: Timing, timing: Timing) -> str:
    """Returns how ours compares with another side; what recording adds, if that is ours too."""
    if timing is ours:
        return ""
    if timing.name.startswith("ours"):
        added = timing.step_us - ours.step_us
        return f"{added:+.1f} µs, {added / ours.step_us:+.1%}"
    low, high = ratio_interval(ours, timing)
    ratio = ours.step_us / timing.step_us
    goal = GOALS.get((result.workload.name, result.workload.running))
    verdict = "" if goal is None else f" goal {goal:g}: {'met' if ratio <= goal else 'MISSED'}"
    return f"{ratio:.3f} ({low:.3f} to {high:.3f}){verdict}"


def growth_with_running(results: Iterable[Result]) -> Iterator[str]:
    """Gives the time that each running request adds, from the smallest to the largest decode."""
    for cached in (False, True):
        found = [
            r
            for r in results
            if r.workload.name == "decode" and r.workload.prefix_caching == cached
        ]
        if len(found) < 2:
            continue
        first, last = found[0], found[-1]
        more = last.workload.running - first.workload.running
        for before, after in zip(first.timings, last.timings, strict=True):
            slope = (after.step_us - before.step_us) / more
            yield (
                f"prefix caching {'on' if cached else 'off':<3}  {before.name:<15} "
                f"{before.step_us:,.1f} + {slope:.3f} µs a request"
            )


def growth_with_waiting(results: Iterable[Result]) -> Iterator[str]:
    """Gives the step of 64 decodes by what waits beside them."""
    for result in results:
        load = result.workload
        what = "set aside for grammars" if load.waits_for_grammar else "ready"
        room = "with room for one more" if load.room else "running list full"
        times = "  ".join(f"{t.name} {t.step_us:>9,.1f}" for t in result.timings)
        yield f"{load.num_waiting:>7,} waiting, {what}, {room:<22}  {times}"


def clock_us(calls: int = 2000) -> float:
    """Returns what reading the clock twice adds to each time, in µs; nothing is subtracted."""
    now: Callable[[], int] = time.thread_time_ns
    return float(np.median([-(now() - now()) for _ in range(calls)])) / 1000


def _step_us(result: Result, peer: Peer | None) -> float | None:
    timing = result.timing(peer)
    return None if timing is None else timing.step_us
