"""How clients behave: do requests come when they come, or when an answer has?

In a closed loop of N clients every arrival but the first N answers an end: it comes a pause after
an end that no other arrival has answered, and there are never more than N in flight. In an open one
arrivals know nothing of ends. What decides is how full the loop is when requests arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from diagnose.replay.workload import Clients, WorkRequest

MIN_FOLLOWERS = 8
"""Arrivals behind the first N from which on a loop can be told."""
FULL_SHARE = 0.9
"""Share of the followers' arrivals at which exactly N - 1 were in flight."""
_MAX_PAUSES = 4096

_Ints = npt.NDArray[np.int64]


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
    share = float((in_flight[followers] == most).mean())
    if share < FULL_SHARE:
        return Clients(
            kind="open",
            reason=f"arrivals do not wait for ends: {share:.0%} of them made the {most} in flight "
            "complete, as all would in a closed loop",
        )
    pauses = arrivals[followers] - ends[followers - most]
    kept = np.maximum(0, pauses)[:: max(1, len(pauses) // _MAX_PAUSES)]
    return Clients(
        kind="closed",
        num_in_flight=most,
        think_ns=tuple(kept.tolist()),
        reason=f"{share:.0%} of the arrivals came when an answer was complete, and there were "
        f"never more than {most} in flight",
    )
