"""Candidates in the engine itself: its pool, its settings, what holds its blocks."""

from __future__ import annotations

from diagnose.causes.change import MAJORITY, Case, Change, rejected, unknown
from diagnose.causes.settings_diff import ChangedSetting
from diagnose.causes.undo import Undo
from diagnose.finding import CauseKind
from diagnose.words import connector_name, harmless, plural

MAX_TOLD = 3
"""Changed settings named in a number; it says how many more there are."""


def judge_pool(case: Case) -> Change:
    """Judges a pool that is smaller than at the last start."""
    kind: CauseKind = "smaller_pool"
    name = "smaller pool"
    pool, before, blocks = case.capacity.pool, case.history.previous, case.capacity.mean_blocks
    old = before.num_usable_blocks if before else None
    if pool is None:
        return unknown(kind, name, "engines.num_usable_blocks")
    if old is None or blocks is None or old <= pool or before is None:
        same = case.history.num_steps_with_whole_pool
        seen = "" if same is None else f" in {same:,} of {case.history.num_steps:,} steps"
        return rejected(kind, name, f"{pool:,} blocks{seen}")
    number = f"{old:,} -> {pool:,} blocks since the last start"
    began = case.settings.started_ts
    undo = Undo(settings={"num_gpu_blocks": before.num_gpu_blocks})
    was_calm = case.history.previous_was_calm
    if not was_calm and not case.fits(case.capacity.peak_running, blocks, old):
        number += "; the old one is too small too"
        return rejected(kind, name, number, began_ts=began, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=number,
        headline=f"The KV pool shrank from {old:,} to {pool:,} blocks at the last start; "
        f"{case.capacity.peak_running} requests ran.",
        relief=old / pool,
        began_ts=began,
        undo=undo,
    )


def judge_settings(case: Case) -> Change:
    """Judges settings that are not those of the last start, or changed while it ran.

    Settings of the last start can be taken back. A `config_changed` event cannot: it says that
    something was set, not what it was before, and a replay has one configuration from its first
    step to its last. So it is named, judged unknown, and gets no share.
    """
    kind: CauseKind = "config_change"
    name = "config change"
    history = case.history
    number = f"{plural(history.num_starts, 'start')}, "
    number += f"{plural(history.num_config_changes, 'change')}"
    changed = history.changed_settings
    if not changed and not history.num_config_changes:
        return rejected(kind, name, number)
    if not changed:
        return unknown(kind, name, number + "; its effect is not recorded")
    began = case.settings.started_ts
    told = f"{_told(changed)} since the last start"
    undo = Undo(settings={each.name: each.old for each in changed})
    previous, slots = history.previous, case.capacity.slots
    old = previous.slots if previous else None
    blocks = case.capacity.mean_blocks
    if old is None or slots is None or blocks is None or old >= slots:
        return rejected(kind, name, told, began_ts=began, undo=undo)
    if not history.previous_was_calm and not case.fits(
        min(old, case.capacity.peak_running), blocks
    ):
        return rejected(kind, name, told + "; too many before too", began_ts=began, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=told,
        headline=f"The last start lets in {slots} requests instead of {old}; "
        f"the KV pool holds {case.capacity.holds} {case.capacity.these} to their end.",
        relief=slots / old,
        began_ts=began,
        undo=undo,
    )


def _told(changed: tuple[ChangedSetting, ...]) -> str:
    """Returns the changed settings, those that a scheduler lives by first."""
    order = ("max_num_seqs", "max_num_batched_tokens", "watermark", "block_size", "policy")
    ranked = sorted(changed, key=lambda each: (each.name not in order, each.name))
    told = ", ".join(harmless(str(each), 60) for each in ranked[:MAX_TOLD])
    more = len(changed) - MAX_TOLD
    return told + (f" and {more} more" if more > 0 else "")


def judge_connector(case: Case) -> Change:
    """Judges blocks that a KV connector keeps from running requests, by the stage that holds."""
    kind: CauseKind = "stuck_loads"
    name = "stuck loads"
    history, pool = case.history, case.capacity.pool
    loading, sending = history.max_blocks_held_by_waiting, history.max_blocks_held_by_ended
    if loading is None or pool is None:
        return unknown(kind, name, "steps.num_blocks_waiting")
    held = loading + (sending or 0)
    stages = f"{loading:,} held for loads, {sending or 0:,} for saves and acknowledgements"
    number = f"{connector_name(case.settings.kv_connector)}, {held:,} held"
    if held < MAJORITY * pool:
        return rejected(kind, name, number if not held else f"{number}: {stages}")
    worst = "wait for their KV loads" if loading >= (sending or 0) else "wait to be saved elsewhere"
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=f"{held:,} of {pool:,} blocks: {stages}",
        headline=f"Requests that {worst} held {held:,} of {pool:,} blocks.",
        relief=pool / max(pool - held, 1),
        began_ts=history.held_since_ts,
        undo=None if history.usual_load_ns is None else Undo(load_ns=history.usual_load_ns),
    )


def judge_reset(case: Case) -> Change:
    """Judges resets of the prefix cache, which evict whoever runs."""
    kind: CauseKind = "cache_reset"
    name = "cache reset"
    resets = case.history.num_cache_resets
    total = max(case.account.num_rows, 1)
    number = plural(resets, "event")
    undo = Undo(without_resets=True) if resets else None
    began = case.history.first_reset_ts
    if case.account.num_cache_reset < MAJORITY * total:
        return rejected(kind, name, number, began_ts=began, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=f"{case.account.num_cache_reset:,} of {case.account.num_rows:,} by a reset",
        headline=f"A reset of the prefix cache evicted {case.account.num_cache_reset:,} times.",
        relief=float(case.account.num_rows),
        began_ts=began,
        undo=undo,
    )


def judge_oversized(case: Case) -> Change:
    """Judges one request that fills most of the pool."""
    kind: CauseKind = "oversized_request"
    name = "oversized"
    capacity, traffic = case.capacity, case.traffic
    if capacity.pool is None or capacity.max_blocks is None or capacity.mean_blocks is None:
        return unknown(kind, name, "engines.num_usable_blocks, engines.block_size")
    largest, n = capacity.max_blocks, capacity.num_measured
    number = f"largest {largest:,} of {capacity.pool:,} blocks"
    rest = (capacity.mean_blocks * n - largest) / max(n - 1, 1)
    one_large = largest >= MAJORITY * capacity.pool and n > 1
    if not one_large or not case.fits(capacity.peak_running - 1, rest):
        return rejected(kind, name, number)
    is_it = traffic.full_blocks >= largest
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=number,
        headline=f"One request fills {largest:,} of {capacity.pool:,} KV blocks; "
        f"the other {capacity.peak_running - 1} would fit without it.",
        relief=largest / max(rest, 1.0),
        began_ts=int(traffic.arrived_ts[is_it][0]) if is_it.any() else None,
        undo=Undo(dropped=frozenset(traffic.request[is_it].tolist())),
    )
