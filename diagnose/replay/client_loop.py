"""How clients behave: do requests come when they come, or when an answer has?

In a closed loop of N clients every arrival but the first N answers an end: the i-th comes a pause
after the (i - N)-th end, and there are never more than N in flight. These pauses are what a client
takes to ask again: short beside the time between two arrivals. In an open loop arrivals know
nothing of ends, and the same differences are as long as chance makes them.

Where clients or the server are slow to pass answers on, the pauses are no longer short. Such a loop
is told by its number in flight, which stays near N; that of an open loop varies as counts of chance
do, its variance about its mean. (Arrivals by the clock can keep their number too: they come at
equal distances, which those behind ends do not.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from diagnose.replay.workload import Clients, WorkRequest

Instants = npt.NDArray[np.int64]

MIN_FOLLOWERS = 8
"""Arrivals behind the first N from which on a loop can be told."""
PAUSE_SHARE = 0.6
"""A loop's typical pause is at most this share of the mean time between two arrivals."""
LONG_PAUSE_SHARE = 2.0
"""Nine in ten are at most so many times as long, ..."""
LASTING_SHARE = 0.1
"""... and this share of a typical request's time."""
STEADY = 0.25
"""Variance of the number in flight over its mean, up to which it is kept. Seen: 0.19 with 28
clients of a vLLM on a busy machine, whose pauses were as long as the distances of arrivals, 0.01 to
0.05 in other loops, 0.4 to 1.9 in open loops."""
MIN_CLIENTS = 4
"""Clients from which on that says something."""
MIN_ROUNDS = 2
"""Requests a client, at least: of a queue that grew to half of all requests nothing is said."""
MIN_UNEVENNESS = 0.3
"""Deviation of the time between two arrivals over its mean: 0 by the clock, 1 by chance."""
_MAX_PAUSES = 4096


def detect_clients(works: Sequence[WorkRequest], ends_ns: Sequence[int | None]) -> Clients:
    """Returns how the clients of a stretch behaved.

    Args:
        works: in the order of their arrival.
        ends_ns: when each ended, None if it did not.
    """
    arrivals = np.array([work.arrived_ns for work in works], dtype=np.int64)
    ends = np.sort(np.array([end for end in ends_ns if end is not None], dtype=np.int64))
    if len(arrivals) < 2:
        return Clients(kind="open", reason="fewer than two requests: nothing speaks for a loop")
    in_flight = np.arange(1, len(arrivals) + 1) - np.searchsorted(ends, arrivals, side="right")
    most = int(in_flight.max())
    followers = np.arange(most, len(arrivals))
    if most < 2 or len(followers) < MIN_FOLLOWERS:
        return Clients(
            kind="open",
            reason=f"{len(arrivals)} requests with {most} in flight are too few to tell a loop "
            "by: they are taken to come when they came",
        )
    pauses = np.maximum(0, arrivals[followers] - ends[followers - most])
    between = float(arrivals[-1] - arrivals[0]) / (len(arrivals) - 1)
    lasting = [end - work.arrived_ns for work, end in zip(works, ends_ns, strict=True) if end]
    typical, long_one = float(np.median(pauses)), float(np.quantile(pauses, 0.9))
    told = f"with {most} in flight at most, a request came {_seconds(typical)} after the end that "
    longest = min(LONG_PAUSE_SHARE * between, LASTING_SHARE * float(np.median(lasting)))
    mean, variance = _in_flight(arrivals, ends, most)
    is_prompt = typical <= PAUSE_SHARE * between and long_one <= longest
    if not is_prompt and not _is_kept(arrivals, most, mean, variance):
        return Clients(
            kind="open",
            reason=told + f"made room for it, nine in ten within {_seconds(long_one)}: too late "
            f"for clients that wait for their answers (a request came every {_seconds(between)})",
        )
    return Clients(
        kind="closed",
        num_in_flight=most,
        think_ns=tuple(pauses[:: -(-len(pauses) // _MAX_PAUSES)].tolist()),
        reason=told
        + f"made room for it, nine in ten within {_seconds(long_one)}"
        + ("" if is_prompt else f", and {mean:.1f} ± {variance**0.5:.1f} were in flight"),
    )


def _in_flight(arrivals: Instants, ends: Instants, most: int) -> tuple[float, float]:
    """Returns mean and variance of the number in flight over time, once `most` had come."""
    moments = np.concatenate([arrivals, ends])
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    in_flight = np.cumsum(np.repeat([1, -1], [len(arrivals), len(ends)])[order])[:-1]
    spans = np.diff(moments)
    spans[(moments[:-1] < arrivals[most - 1]) | (moments[:-1] >= arrivals[-1])] = 0
    if not spans.any():
        return 0.0, 0.0
    mean = float(np.average(in_flight, weights=spans))
    return mean, float(np.average((in_flight - mean) ** 2, weights=spans))


def _is_kept(arrivals: Instants, most: int, mean: float, variance: float) -> bool:
    """Whether the number in flight is that of clients who come back, and not by the clock."""
    distances = np.diff(arrivals)
    unevenness = float(distances.std() / max(distances.mean(), 1.0))
    came_back = len(arrivals) >= MIN_ROUNDS * most
    is_loop = most >= MIN_CLIENTS and came_back and unevenness >= MIN_UNEVENNESS
    return is_loop and variance <= STEADY * mean


def _seconds(ns: float) -> str:
    """Returns a time for people."""
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else f"{ns / 1e6:.3g} ms"
