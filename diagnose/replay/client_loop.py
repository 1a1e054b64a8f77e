"""How clients behave: do requests come when they come, or when an answer has?

In a closed loop of N clients every arrival but the first N answers an end: the i-th comes a pause
after the (i - N)-th end, and there are never more than N in flight. These pauses are what a client
takes to ask again: short beside the time between two arrivals. In an open loop arrivals know
nothing of ends, and the same differences are as long as chance makes them.

Where clients or the server are slow to pass answers on, the pauses are no longer short. Such a loop
is told by its number in flight, which stays at N for much of the time; in an open loop the most
that were ever in flight are there for moments. (Arrivals by the clock can keep their number too:
they come at equal distances, which those behind ends do not.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from diagnose.replay.workload import Clients, WorkRequest
from diagnose.words import percent

Instants = npt.NDArray[np.int64]

MIN_FOLLOWERS = 8
"""Arrivals behind the first N from which on a loop can be told."""
PAUSE_SHARE = 0.6
"""A loop's typical pause is at most this share of the mean time between two arrivals."""
LONG_PAUSE_SHARE = 2.0
"""Nine in ten are at most so many times as long, ..."""
LASTING_SHARE = 0.1
"""... and this share of a typical request's time."""
NEARLY = 0.9
FULL_SHARE = 0.4
"""Nearly all N clients are in flight for this share of the time from which on a loop is told by it.
Seen: 0.81 with 28 clients of a vLLM on a busy machine, whose pauses were as long as the distances
of arrivals; at most 0.1 in open loops."""
MIN_FULL = 4
"""Clients from which on that says something."""
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
    full = _full_share(arrivals, ends, most)
    is_prompt = typical <= PAUSE_SHARE * between and long_one <= longest
    if not is_prompt and not _is_kept_full(arrivals, most, full):
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
        + ("" if is_prompt else f", and nearly {most} were in flight {percent(full)} of the time"),
    )


def _full_share(arrivals: Instants, ends: Instants, most: int) -> float:
    """Returns for what share of the time nearly `most` were in flight, once they had been."""
    moments = np.concatenate([arrivals, ends])
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    in_flight = np.cumsum(np.repeat([1, -1], [len(arrivals), len(ends)])[order])
    first = moments[int(np.argmax(in_flight == most))]
    spans = np.diff(moments)
    is_looked_at = (moments[:-1] >= first) & (moments[:-1] < arrivals[-1])
    lasted = float(spans[is_looked_at].sum())
    return (
        float(spans[is_looked_at & (in_flight[:-1] >= NEARLY * most)].sum()) / lasted
        if lasted
        else 0.0
    )


def _is_kept_full(arrivals: Instants, most: int, full: float) -> bool:
    distances = np.diff(arrivals)
    unevenness = float(distances.std() / max(distances.mean(), 1.0))
    return most >= MIN_FULL and full >= FULL_SHARE and unevenness >= MIN_UNEVENNESS


def _seconds(ns: float) -> str:
    """Returns a time for people."""
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else f"{ns / 1e6:.3g} ms"
