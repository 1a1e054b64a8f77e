"""Candidates in the requests' lengths: longer prompts, longer outputs."""

from __future__ import annotations

import numpy as np

from diagnose.causes.change import Case, Change, rejected, unknown
from diagnose.causes.change_point import find_change
from diagnose.causes.traffic import Ints, Traffic
from diagnose.causes.undo import Undo, as_before
from diagnose.finding import CauseKind
from diagnose.words import count

MIN_LENGTH_RATIO = 1.25
"""Lengths must have grown by this much to count as longer. Starting value."""
MAX_RATE_RATIO = 1.5
"""Arrivals after a change of lengths, against before, that still count as the same rate."""


def judge_prompts(case: Case) -> Change:
    """Judges prompts that became longer."""
    return _lengths(case, "longer_prompts", "longer prompts", case.traffic.num_prompt_tokens)


def judge_outputs(case: Case) -> Change:
    """Judges outputs that became longer, of requests that have ended."""
    return _lengths(case, "longer_outputs", "longer outputs", case.traffic.num_output_tokens)


def _lengths(case: Case, kind: CauseKind, name: str, lengths: Ints) -> Change:
    traffic, capacity = case.traffic, case.capacity
    known = lengths >= 0
    sizes, blocks = lengths[known], traffic.full_blocks[known]
    if not len(sizes) or capacity.mean_blocks is None:
        return unknown(kind, name, "no request has ended yet")
    low, high = int(sizes.min()), int(sizes.max())
    n = len(sizes)
    if low == high:
        return rejected(kind, name, f"{count(low)} tokens in {n:,} of {n:,} requests")
    change = find_change(sizes)
    if change is None or change.ratio < MIN_LENGTH_RATIO:
        return rejected(kind, name, f"{count(low)} to {count(high)} tokens, no change in {n:,}")
    number = f"median {change.median_before:,.0f} -> {change.median_after:,.0f} tokens"
    began = int(traffic.arrived_ts[known][change.index])
    before, after = float(blocks[: change.index].mean()), float(blocks[change.index :].mean())
    undo = _lengths_as_before(traffic, kind, lengths, change.index)
    if began > case.episode.opened_ts:
        number += ", after the first one"
        is_late = began > case.episode.last_ts
        return rejected(kind, name, number, began_ts=began, undo=None if is_late else undo)
    if not _explains_growth(case, began, before, after):
        number += ", not enough alone"
        return rejected(kind, name, number, began_ts=began, undo=undo)
    now = (capacity.pool or 0) // max(round(after), 1)
    once = (capacity.pool or 0) // max(round(before), 1)
    grown = name.removeprefix("longer ").capitalize()
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=f"{number} from request {traffic.request[known][change.index]} on",
        headline=f"{grown} grew from {change.median_before:,.0f} to {change.median_after:,.0f} "
        f"tokens; the KV pool holds {now} of them, before {once}.",
        relief=after / before,
        began_ts=began,
        undo=undo,
    )


def _lengths_as_before(traffic: Traffic, kind: CauseKind, lengths: Ints, index: int) -> Undo:
    """Returns the lengths from the change on, rank by rank as they were; open ones in proportion.

    `index` counts those whose length is known.
    """
    known = lengths >= 0
    requests, sizes = traffic.request[known], lengths[known]
    then = as_before(sizes[:index], sizes[index:])
    sizes_then = dict(zip(requests[index:].tolist(), then.tolist(), strict=True))
    if kind == "longer_prompts":
        return Undo(num_prompt_tokens=sizes_then)
    ratio = float(then.mean()) / max(float(sizes[index:].mean()), 1.0)
    is_open = (lengths < 0) & (traffic.arrived_ts >= traffic.arrived_ts[known][index])
    asked = np.maximum(traffic.max_tokens[is_open] * ratio, 1).astype(np.int64)
    sizes_then |= dict(zip(traffic.request[is_open].tolist(), asked.tolist(), strict=True))
    return Undo(num_output_tokens=sizes_then)


def _explains_growth(case: Case, began: int, before: float, after: float) -> bool:
    """Whether longer requests alone overflow the pool.

    Longer requests also stay longer, so more are in flight: with arrivals as before that is their
    doing, and it is enough that the pool held what was in flight until then.
    """
    traffic, running = case.traffic, case.capacity.peak_running
    if case.fits(running, after):
        return False
    if case.fits(running, before):
        return True
    arrived = traffic.arrived_ts
    old, new = arrived[arrived < began], arrived[arrived >= began]
    if len(old) < 2 or len(new) < 2:
        return False
    old_rate = (len(old) - 1) / max(int(old[-1] - old[0]), 1)
    new_rate = (len(new) - 1) / max(int(new[-1] - new[0]), 1)
    once = int(traffic.in_flight_at(old).max())
    return case.fits(once, before) and new_rate < MAX_RATE_RATIO * old_rate
