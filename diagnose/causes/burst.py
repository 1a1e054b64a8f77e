"""A burst of arrivals: a jump of the requests in flight that the usual rate does not explain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from diagnose.causes.traffic import Ints, Traffic
from diagnose.reading import NS

SPANS_NS = (NS // 20, NS // 4, NS, 5 * NS)
"""Lengths of time in which a jump is looked for, shortest first. Starting values.

Only those in which hardly a request could have left: the quickest tenth takes longer.
"""
MIN_GROWTH = 1.25
"""Requests in flight after the jump, against before. From runs with bursts on a busy engine."""
MIN_ARRIVALS = 4
"""Fewer arrivals are no burst. Starting value."""
MIN_RATE_RATIO = 3.0
"""Arrivals in the span against those that the rate around it would bring. Starting value."""
MIN_LIKELIHOOD = 10.0
"""Log-likelihood by which two rates explain the span better than one: chance clusters stay under
it (10 independent of each other arrive in the time of 2 once in 20,000 such spans)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """`before` -> `after` requests in flight, `num_arrivals` of them within `span_ns`."""

    start_ts: int
    span_ns: int
    before: int
    after: int
    num_arrivals: int
    rate_ratio: float | None
    """Against the rate around it; `None` where nothing else arrived."""

    @property
    def num_as_around(self) -> int:
        """How many would have come in the span at the rate around it."""
        return 0 if self.rate_ratio is None else round(self.num_arrivals / max(self.rate_ratio, 1))

    @property
    def is_unusual(self) -> bool:
        """Whether more arrived at once than the rate around it explains."""
        if self.num_arrivals < MIN_ARRIVALS or self.after < MIN_GROWTH * self.before:
            return False
        if self.rate_ratio is None:
            return True
        return self.rate_ratio >= MIN_RATE_RATIO and self.likelihood >= MIN_LIKELIHOOD

    @property
    def likelihood(self) -> float:
        """By how much a rate of its own explains the span better than the rate around it."""
        if self.rate_ratio is None:
            return math.inf
        expected = self.num_arrivals / self.rate_ratio
        return self.num_arrivals * math.log(self.rate_ratio) - (self.num_arrivals - expected)

    def overflows(self, num_fitting: int) -> bool:
        """Whether those in flight fitted before it and no longer after."""
        return self.before <= num_fitting < self.after


def find_burst(
    traffic: Traffic, context_start_ts: int, until_ts: int, num_fitting: int
) -> Burst | None:
    """Returns the shortest unusual jump that overflows the pool; else the largest unusual one.

    Where none is unusual, the largest jump there was.

    Args:
        traffic: the requests around.
        context_start_ts: from when on arrivals count for the rate around the burst.
        until_ts: the first preemption; a later jump is no cause of it.
        num_fitting: requests that the pool holds at full length.
    """
    starts = traffic.arrived_ts[
        (traffic.arrived_ts >= context_start_ts) & (traffic.arrived_ts <= until_ts)
    ]
    if not len(starts):
        return None
    before = traffic.in_flight_at(starts - 1)
    jumps = []
    quick = traffic.quick_ns
    spans = [span for span in SPANS_NS if quick is None or span <= quick]
    for span in spans or SPANS_NS[:1]:
        for best in _best(traffic, starts, before, span, num_fitting):
            jumps.append(_describe(traffic, best, span, context_start_ts))
            if jumps[-1].is_unusual and jumps[-1].overflows(num_fitting):
                return jumps[-1]
    return max(jumps, key=lambda burst: (burst.is_unusual, burst.after - burst.before))


def _best(traffic: Traffic, starts: Ints, before: Ints, span: int, num_fitting: int) -> list[int]:
    """Returns where the largest jump of a span begins: from where all still fitted, and of all."""
    jumps = traffic.in_flight_at(starts + span) - before
    from_fitting = np.where(before <= num_fitting, jumps, -1)
    found = [int(starts[int(jumps.argmax())])]
    if from_fitting.max() > 0:
        found.insert(0, int(starts[int(from_fitting.argmax())]))
    return found


def _describe(traffic: Traffic, start: int, span: int, context_start_ts: int) -> Burst:
    arrived = traffic.arrived_ts
    inside = arrived[(arrived >= start) & (arrived <= start + span)]
    end = int(inside[-1])
    context = arrived[arrived >= context_start_ts]
    others = len(context) - len(inside)
    around_ns = max(int(context[-1]) - int(context[0]) - span, 0)
    ratio = None
    if others > 0 and around_ns > 0:
        ratio = len(inside) / (others * span / around_ns)
    elif others > 0:
        ratio = 1.0
    moments = np.array([start - 1, end], dtype=np.int64)
    before, after = (int(n) for n in traffic.in_flight_at(moments))
    return Burst(
        start_ts=start,
        span_ns=end - start,
        before=before,
        after=after,
        num_arrivals=len(inside),
        rate_ratio=ratio,
    )
