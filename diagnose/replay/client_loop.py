"""How clients behave: do requests come when they come, or when an answer has?

In a closed loop of N clients every arrival but the first N answers an end: the i-th comes a pause
after the (i - N)-th end, and there are never more than N in flight. These pauses are what a client
takes to ask again: short beside the time between two arrivals. In an open loop arrivals know
nothing of ends, and the same differences are as long as chance makes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagnose.replay.workload import Clients, WorkRequest

MIN_FOLLOWERS = 8
"""Arrivals behind the first N from which on a loop can be told."""
PAUSE_SHARE = 0.6
"""A loop's typical pause is at most this share of the mean time between two arrivals."""
LONG_PAUSE_SHARE = 2.0
"""Nine in ten are at most so many times as long, ..."""
LASTING_SHARE = 0.1
"""... and this share of a typical request's time."""
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
    if typical > PAUSE_SHARE * between or long_one > longest:
        return Clients(
            kind="open",
            reason=told + f"made room for it, nine in ten within {_seconds(long_one)}: too late "
            f"for clients that wait for their answers (a request came every {_seconds(between)})",
        )
    return Clients(
        kind="closed",
        num_in_flight=most,
        think_ns=tuple(pauses[:: -(-len(pauses) // _MAX_PAUSES)].tolist()),
        reason=told + f"made room for it, nine in ten within {_seconds(long_one)}",
    )


def _seconds(ns: float) -> str:
    """Returns a time for people."""
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else f"{ns / 1e6:.3g} ms"
