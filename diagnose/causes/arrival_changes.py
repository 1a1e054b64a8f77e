"""Candidates in how requests arrive: at once, more often, and how many that makes."""

from __future__ import annotations

import numpy as np

from diagnose.causes.arrival_rate import FasterStretch, find_faster
from diagnose.causes.burst import Burst, find_burst
from diagnose.causes.change import Case, Change, rejected, unknown
from diagnose.causes.traffic import Bools, Traffic
from diagnose.causes.undo import Undo, thinned, together
from diagnose.finding import CauseKind
from diagnose.words import duration

MIN_RATE_GROWTH = 1.25
"""Arrivals must have become this much more frequent to count as more. Starting value."""
MIN_FLIGHT_GROWTH = 1.25
"""Requests in flight must have grown so much with them. Starting value."""
MAX_BURSTS = 8
"""Bursts of an episode that are looked for."""


def judge_burst(case: Case) -> Change:
    """Judges a jump of the requests in flight within seconds."""
    kind: CauseKind = "burst_of_arrivals"
    name = "burst of arrivals"
    capacity = case.capacity
    if capacity.pool is None or not capacity.mean_blocks:
        return unknown(kind, name, "engines.num_usable_blocks, engines.block_size")
    fitting = int(capacity.pool / capacity.mean_blocks)
    burst = find_burst(case.traffic, case.context_start_ts, case.episode.opened_ts, fitting)
    if burst is None:
        return unknown(kind, name, "no arrivals recorded before the first one")
    span = duration(burst.span_ns)
    number = f"{burst.before} -> {burst.after} in flight in {span}"
    is_limited = case.fits(burst.after, capacity.mean_blocks)
    if not burst.is_unusual:
        later = find_burst(case.traffic, case.context_start_ts, case.episode.last_ts, fitting)
        if later is not None and later.is_unusual:
            return _burst_within(case, later, fitting)
        if burst.rate_ratio is not None:
            number += f", {burst.rate_ratio:.1f} x the usual rate"
        return rejected(kind, name, number)
    undo = _without_bursts(case, burst, fitting)
    if not burst.overflows(fitting) or is_limited:
        return rejected(kind, name, number, began_ts=burst.start_ts, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=f"{burst.before} -> {burst.after} in flight within {span}",
        headline=f"The KV pool holds {capacity.holds} {capacity.these} to their end; "
        f"{burst.num_arrivals} arrived in {span}{_let_in(case, burst.after)}.",
        relief=burst.after / max(burst.before, 1),
        began_ts=burst.start_ts,
        undo=undo,
    )


def _burst_within(case: Case, burst: Burst, fitting: int) -> Change:
    """Returns a burst that came when requests were being preempted already: it added to them."""
    number = f"{burst.before} -> {burst.after} in flight in {duration(burst.span_ns)}, "
    return rejected(
        "burst_of_arrivals",
        "burst of arrivals",
        number + "after the first one",
        began_ts=burst.start_ts,
        undo=_without_bursts(case, burst, fitting),
    )


def _without_bursts(case: Case, first: Burst, fitting: int) -> Undo:
    """Returns the burst, and those that followed it in the episode, thinned to the rate around."""
    undos, traffic, burst = [], case.traffic, first
    for _ in range(MAX_BURSTS):
        inside = traffic.request[_within(traffic, burst.start_ts, burst.start_ts + burst.span_ns)]
        undos.append(Undo(dropped=thinned(inside, burst.num_as_around)))
        traffic = traffic.only(~np.isin(traffic.request, list(undos[-1].dropped)))
        found = find_burst(traffic, case.context_start_ts, case.episode.last_ts, fitting)
        if found is None or not found.is_unusual:
            break
        burst = found
    return together(undos)


def _within(traffic: Traffic, start: int, end: int) -> Bools:
    return np.asarray((traffic.arrived_ts >= start) & (traffic.arrived_ts <= end))


def _let_in(case: Case, num_in_flight: int) -> str:
    if case.max_running is None:
        return ""
    if case.max_running >= num_in_flight:
        return " and all were let in"
    return f" and up to {case.max_running:,} were let in"


def judge_rate(case: Case) -> Change:
    """Judges requests that kept coming more often, a burst apart."""
    kind: CauseKind = "more_arrivals"
    name = "more arrivals"
    traffic = _without_burst(case)
    faster = find_faster(traffic.arrived_ts, case.context_start_ts, case.episode.last_ts)
    if faster is None:
        return rejected(kind, name, f"one rate in {len(traffic):,} arrivals")
    number = f"{faster.per_second_around:.2f} -> {faster.per_second:.2f} requests/s"
    before, after = _in_flight_around(case, faster)
    number += f", {before} -> {after} in flight"
    is_rise = faster.ratio >= MIN_RATE_GROWTH and after >= MIN_FLIGHT_GROWTH * max(before, 1)
    if not is_rise:
        return rejected(kind, name, number)
    inside = traffic.request[_within(traffic, faster.start_ts, faster.end_ts)]
    undo = Undo(dropped=thinned(inside, faster.num_as_around))
    blocks = case.capacity.mean_blocks
    if faster.start_ts > case.episode.opened_ts:
        number += ", after the first one"
        return rejected(kind, name, number, began_ts=faster.start_ts, undo=undo)
    if blocks is None or not case.fits(before, blocks) or case.fits(after, blocks):
        return rejected(kind, name, number, began_ts=faster.start_ts, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=number,
        headline=f"Requests came {faster.ratio:.1f} times as often; {after} were in flight, and "
        f"the KV pool holds {case.capacity.holds} {case.capacity.these} to their end.",
        relief=after / max(before, 1),
        began_ts=faster.start_ts,
        undo=undo,
    )


def _without_burst(case: Case) -> Traffic:
    undo = judge_burst(case).undo
    if undo is None:
        return case.traffic
    return case.traffic.only(~np.isin(case.traffic.request, list(undo.dropped)))


def _in_flight_around(case: Case, faster: FasterStretch) -> tuple[int, int]:
    """Returns the most in flight before a faster stretch, and from then on."""
    arrived = case.traffic.arrived_ts
    in_flight = case.traffic.in_flight_at(arrived)
    before = in_flight[(arrived < faster.start_ts) & (arrived >= case.context_start_ts)]
    after = in_flight[(arrived >= faster.start_ts) & (arrived <= case.episode.last_ts)]
    return int(before.max(initial=0)), int(after.max(initial=0))


def judge_concurrency(case: Case) -> Change:
    """Judges how many requests are in the engine at once: a consequence of the others, told."""
    traffic, opened = case.traffic, case.episode.opened_ts
    arrived = traffic.arrived_ts[traffic.arrived_ts >= case.context_start_ts]
    in_flight = traffic.in_flight_at(arrived)
    before, after = in_flight[arrived < opened], in_flight[arrived >= opened]
    peaks = f"{int(before.max(initial=0))} -> {int(after.max(initial=0))} in flight"
    if case.max_running is not None:
        peaks += f", {case.max_running:,} ran"
    return rejected("more_arrivals", "concurrency", f"{peaks}; follows from the others")
