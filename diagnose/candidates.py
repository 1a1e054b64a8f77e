"""The candidates for a cause, each judged by itself and each with the number that decided.

All that have a size are judged alike: demand is `requests running x blocks of each at full length`;
a candidate is confirmed if it did change and if, put back alone to what it was, the demand would
have fitted the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from diagnose.accounting import Accounting
from diagnose.burst import find_burst
from diagnose.capacity import Capacity
from diagnose.change_point import find_change
from diagnose.episodes import Episode
from diagnose.facts import EngineSettings
from diagnose.finding import CauseKind
from diagnose.history import History
from diagnose.traffic import Ints, Traffic
from diagnose.words import connector_name, count, duration, plural

MIN_LENGTH_RATIO = 1.25
"""Lengths must have grown by this much to count as longer. Starting value."""
MAX_RATE_RATIO = 1.5
"""Arrivals after a change of lengths, against before, that still count as the same rate."""
MAJORITY = 0.5
"""Share of the preemptions, or of the pool, from which one thing counts as the reason."""

Status = Literal["confirmed", "rejected", "not_measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One candidate, what became of it and the number that decided.

    `relief` is by how much the demand on the pool falls when it alone is put back.
    """

    kind: CauseKind
    name: str
    status: Status
    number: str
    headline: str = ""
    relief: float = 0.0
    num_preemptions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What every candidate is judged on."""

    episode: Episode
    settings: EngineSettings
    account: Accounting
    history: History
    traffic: Traffic
    capacity: Capacity
    context_start_ts: int
    max_running: int | None
    """Most requests that ran at once in the stretch."""

    def fits(self, num_requests: float, blocks: float, pool: int | None = None) -> bool:
        """Whether so many requests of so many blocks fit the pool (this one, or another)."""
        pool = self.capacity.pool if pool is None else pool
        slots = self.capacity.slots
        running = num_requests if slots is None else min(num_requests, slots)
        return pool is not None and running * blocks <= pool


def _burst(case: Case) -> Change:
    name: CauseKind = "burst_of_arrivals"
    capacity, opened = case.capacity, case.episode.opened_ts
    if capacity.pool is None or not capacity.mean_blocks:
        return _unknown(name, "burst of arrivals", "engines.num_usable_blocks, engines.block_size")
    fitting = int(capacity.pool / capacity.mean_blocks)
    burst = find_burst(case.traffic, case.context_start_ts, opened, fitting)
    if burst is None:
        return _unknown(name, "burst of arrivals", "no arrivals recorded before the first one")
    span = duration(burst.span_ns)
    number = f"{burst.before} -> {burst.after} in flight in {span}"
    is_limited = case.fits(burst.after, capacity.mean_blocks)
    if not burst.is_unusual or not burst.overflows(fitting) or is_limited:
        if burst.rate_ratio is not None and not burst.is_unusual:
            number += f", {burst.rate_ratio:.1f} x the usual rate"
        return _rejected(name, "burst of arrivals", number)
    return Change(
        kind=name,
        name="burst of arrivals",
        status="confirmed",
        number=f"{burst.before} -> {burst.after} in flight within {span}",
        headline=f"The KV pool holds {capacity.holds} {capacity.these} to their end; "
        f"{burst.num_arrivals} arrived in {span}{_let_in(case, burst.after)}.",
        relief=burst.after / max(burst.before, 1),
    )


def _let_in(case: Case, num_in_flight: int) -> str:
    if case.max_running is None:
        return ""
    if case.max_running >= num_in_flight:
        return " and all were let in"
    return f" and up to {case.max_running:,} were let in"


def _pool(case: Case) -> Change:
    pool, before, blocks = case.capacity.pool, case.history.previous, case.capacity.mean_blocks
    old = before.num_usable_blocks if before else None
    if pool is None:
        return _unknown("smaller_pool", "smaller pool", "engines.num_usable_blocks")
    if old is None or blocks is None or old <= pool:
        same = case.history.num_steps_with_whole_pool
        seen = "" if same is None else f" in {same:,} of {case.history.num_steps:,} steps"
        return _rejected("smaller_pool", "smaller pool", f"{pool:,} blocks{seen}")
    number = f"{old:,} -> {pool:,} blocks since the last start"
    was_calm = case.history.previous_was_calm
    if not was_calm and not case.fits(case.capacity.peak_running, blocks, old):
        return _rejected("smaller_pool", "smaller pool", number + "; the old one is too small too")
    return Change(
        kind="smaller_pool",
        name="smaller pool",
        status="confirmed",
        number=number,
        headline=f"The KV pool shrank from {old:,} to {pool:,} blocks at the last start; "
        f"{case.capacity.peak_running} requests ran.",
        relief=old / pool,
    )


def _prompts(case: Case) -> Change:
    return _lengths(case, "longer_prompts", "longer prompts", case.traffic.num_prompt_tokens)


def _outputs(case: Case) -> Change:
    return _lengths(case, "longer_outputs", "longer outputs", case.traffic.num_output_tokens)


def _lengths(case: Case, kind: CauseKind, name: str, lengths: Ints) -> Change:
    traffic, capacity = case.traffic, case.capacity
    known = lengths >= 0
    sizes, blocks = lengths[known], traffic.full_blocks[known]
    if not len(sizes) or capacity.mean_blocks is None:
        return _unknown(kind, name, "no request has ended yet")
    low, high = int(sizes.min()), int(sizes.max())
    n = len(sizes)
    if low == high:
        return _rejected(kind, name, f"{count(low)} tokens in {n:,} of {n:,} requests")
    change = find_change(sizes)
    if change is None or change.ratio < MIN_LENGTH_RATIO:
        return _rejected(kind, name, f"{count(low)} to {count(high)} tokens, no change in {n:,}")
    number = f"median {change.median_before:,.0f} -> {change.median_after:,.0f} tokens"
    began = int(traffic.arrived_ts[known][change.index])
    before, after = float(blocks[: change.index].mean()), float(blocks[change.index :].mean())
    if began > case.episode.opened_ts:
        return _rejected(kind, name, f"{number}, after the first one")
    if not _explains_growth(case, began, before, after):
        return _rejected(kind, name, f"{number}, not enough alone")
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
    )


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


def _config(case: Case) -> Change:
    history = case.history
    previous, slots = history.previous, case.capacity.slots
    starts = plural(history.num_starts, "start")
    number = f"{starts}, {plural(history.num_config_changes, 'change')}"
    old = previous.slots if previous else None
    blocks = case.capacity.mean_blocks
    if old is not None and slots is not None and blocks is not None and old < slots:
        number = f"max_num_seqs {old} -> {slots} since the last start"
        was_calm = history.previous_was_calm
        if was_calm or case.fits(min(old, case.capacity.peak_running), blocks):
            return Change(
                kind="config_change",
                name="config change",
                status="confirmed",
                number=number,
                headline=f"The last start lets in {slots} requests instead of {old}; "
                f"the KV pool holds {case.capacity.holds} {case.capacity.these} to their end.",
                relief=slots / old,
            )
    if history.num_config_changes:
        return _unknown("config_change", "config change", number + "; its effect is not recorded")
    return _rejected("config_change", "config change", number)


def _priority(case: Case) -> Change:
    account, traffic = case.account, case.traffic
    inside = traffic.between(case.episode.opened_ts, case.episode.last_ts)
    values = len(set(traffic.priority[inside].tolist()))
    number = "1 priority value"
    if values > 1:
        share = f"{account.num_priority:,} of {account.num_from_kv:,}"
        number = f"{values} priorities, {share} by priority"
    total = max(account.num_from_kv, 1)
    blocks = case.capacity.mean_blocks
    if account.num_priority < MAJORITY * total or blocks is None:
        return _rejected("priority_churn", "priority churn", number)
    lowest = int(traffic.priority[inside].max())
    alone = traffic.offered(traffic.priority == lowest, case.context_start_ts, case.episode.last_ts)
    if alone is None or not case.fits(alone, blocks):
        return _rejected("priority_churn", "priority churn", number + "; too many without")
    return Change(
        kind="priority_churn",
        name="priority churn",
        status="confirmed",
        number=f"{account.num_priority:,} of {account.num_rows:,} by priority",
        headline=f"More urgent requests took the blocks of less urgent ones "
        f"{account.num_priority:,} times; without them the others fit.",
        relief=case.capacity.peak_running / max(alone, 1.0),
    )


def _loads(case: Case) -> Change:
    held, pool = case.history.max_blocks_held_by_waiting, case.capacity.pool
    if held is None or pool is None:
        return _unknown("stuck_loads", "stuck loads", "steps.num_blocks_waiting")
    number = f"{connector_name(case.settings.kv_connector)}, {held:,} held"
    if held < MAJORITY * pool:
        return _rejected("stuck_loads", "stuck loads", number)
    return Change(
        kind="stuck_loads",
        name="stuck loads",
        status="confirmed",
        number=f"{held:,} of {pool:,} blocks held by waiting requests",
        headline=f"Requests that wait for their KV loads held {held:,} of {pool:,} blocks.",
        relief=pool / max(pool - held, 1),
    )


def _reset(case: Case) -> Change:
    resets = case.history.num_cache_resets
    total = max(case.account.num_rows, 1)
    number = f"{plural(resets, 'event')}"
    if case.account.num_cache_reset < MAJORITY * total:
        return _rejected("cache_reset", "cache reset", number)
    return Change(
        kind="cache_reset",
        name="cache reset",
        status="confirmed",
        number=f"{case.account.num_cache_reset:,} of {case.account.num_rows:,} by a reset",
        headline=f"A reset of the prefix cache evicted {case.account.num_cache_reset:,} times.",
        relief=float(case.account.num_rows),
    )


def _oversized(case: Case) -> Change:
    capacity = case.capacity
    kind: CauseKind = "oversized_request"
    if capacity.pool is None or capacity.max_blocks is None or capacity.mean_blocks is None:
        return _unknown(kind, "oversized", "engines.num_usable_blocks, engines.block_size")
    largest, n = capacity.max_blocks, capacity.num_measured
    number = f"largest {largest:,} of {capacity.pool:,} blocks"
    rest = (capacity.mean_blocks * n - largest) / max(n - 1, 1)
    one_large = largest >= MAJORITY * capacity.pool and n > 1
    if not one_large or not case.fits(capacity.peak_running - 1, rest):
        return _rejected(kind, "oversized", number)
    return Change(
        kind=kind,
        name="oversized",
        status="confirmed",
        number=number,
        headline=f"One request fills {largest:,} of {capacity.pool:,} KV blocks; "
        f"the other {capacity.peak_running - 1} would fit without it.",
        relief=largest / max(rest, 1.0),
    )


JUDGES: tuple[Callable[[Case], Change], ...] = (
    _burst,
    _pool,
    _prompts,
    _outputs,
    _config,
    _priority,
    _loads,
    _reset,
    _oversized,
)
"""Every candidate, in the order in which they are told."""


def _rejected(kind: CauseKind, name: str, number: str) -> Change:
    return Change(kind=kind, name=name, status="rejected", number=number)


def _unknown(kind: CauseKind, name: str, number: str) -> Change:
    return Change(kind=kind, name=name, status="not_measured", number=number)
