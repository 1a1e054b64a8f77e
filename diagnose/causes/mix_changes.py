"""Candidates in what requests are: how urgent, of which adapter, how much like earlier ones."""

from __future__ import annotations

import numpy as np

from diagnose.causes.change import MAJORITY, Case, Change, rejected
from diagnose.causes.change_point import find_change
from diagnose.causes.traffic import Ints
from diagnose.causes.undo import Undo, thinned
from diagnose.finding import CauseKind
from diagnose.reading import read_row
from diagnose.words import percent, plural

MIN_SHARING_LOST = 0.2
"""Part of the prompts that earlier ones no longer share. Starting value."""

HITS_SQL = """
SELECT sum(num_hit_tokens) FILTER (ts < {began})::BIGINT AS hit_before,
       sum(num_hit_tokens) FILTER (ts >= {began})::BIGINT AS hit_after
FROM request_events WHERE {where} AND kind = event_kind('admitted')
"""


def judge_priorities(case: Case) -> Change:
    """Judges urgent requests that take the blocks of others, and whether their part has grown."""
    kind: CauseKind = "priority_churn"
    name = "priority churn"
    account, traffic = case.account, case.traffic
    inside = traffic.between(case.episode.opened_ts, case.episode.last_ts)
    values = len(set(traffic.priority[inside].tolist()))
    if values <= 1:
        return rejected(kind, name, "1 priority value")
    number = f"{values} priorities, {account.num_priority:,} of {account.num_from_kv:,} by priority"
    mix, began, undo = _priority_mix(case)
    number += mix
    total = max(account.num_from_kv, 1)
    blocks = case.capacity.mean_blocks
    if account.num_priority < MAJORITY * total or blocks is None:
        return rejected(kind, name, number, began_ts=began, undo=undo)
    lowest = int(traffic.priority[inside].max())
    alone = traffic.offered(traffic.priority == lowest, case.context_start_ts, case.episode.last_ts)
    if alone is None or not case.fits(alone, blocks):
        number += "; too many without"
        return rejected(kind, name, number, began_ts=began, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=f"{account.num_priority:,} of {account.num_rows:,} by priority{mix}",
        headline=f"More urgent requests took the blocks of less urgent ones "
        f"{account.num_priority:,} times; without them the others fit.",
        relief=case.capacity.peak_running / max(alone, 1.0),
        began_ts=began,
        undo=undo,
    )


def _priority_mix(case: Case) -> tuple[str, int | None, Undo | None]:
    """Returns how the part of urgent requests changed, since when, and how to take it back.

    Taken back, the urgent ones that there were not before have the common priority.
    """
    traffic = case.traffic
    values, numbers = np.unique(traffic.priority, return_counts=True)
    common = int(values[numbers.argmax()])
    is_urgent = (traffic.priority < common).astype(np.int64)
    if not is_urgent.any():
        return "", None, None
    change = find_change(is_urgent)
    if change is None or change.mean_after <= change.mean_before:
        return "", None, None
    began = int(traffic.arrived_ts[change.index])
    if began > case.episode.opened_ts:
        return "", None, None
    after = traffic.request[change.index :][is_urgent[change.index :] == 1]
    num_kept = round(change.mean_before * (len(traffic) - change.index))
    calmed = dict.fromkeys(thinned(after, num_kept), common)
    mix = f"; urgent {percent(change.mean_before)} -> {percent(change.mean_after)} of requests"
    return mix, began, Undo(priority=calmed)


def judge_adapters(case: Case) -> Change:
    """Judges requests of adapters that were not there before."""
    kind: CauseKind = "more_adapters"
    name = "more adapters"
    traffic, opened = case.traffic, case.episode.opened_ts
    names = sorted(set(traffic.adapter.tolist()) - {-1})
    if not names:
        return rejected(kind, name, "no adapters")
    middle = (case.context_start_ts + opened) // 2
    old = set(traffic.adapter[traffic.arrived_ts < middle].tolist()) - {-1}
    is_new = np.isin(traffic.adapter, sorted(set(names) - old))
    number = f"{plural(len(old), 'adapter')} -> {len(names)}"
    if not old or not is_new.any():
        return rejected(kind, name, number)
    began = int(traffic.arrived_ts[is_new][0])
    if began > opened:
        return rejected(kind, name, f"{number}, after the first one")
    undo = Undo(dropped=frozenset(traffic.request[is_new].tolist()))
    number += f", {int(is_new.sum()):,} of {len(traffic):,} requests use the new ones"
    blocks = case.capacity.mean_blocks
    rest = traffic.offered(~is_new, case.context_start_ts, case.episode.last_ts)
    if blocks is None or rest is None or not case.fits(rest, blocks):
        return rejected(kind, name, number, began_ts=began, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=number,
        headline=f"{plural(len(names) - len(old), 'adapter')} came in and brought "
        f"{int(is_new.sum()):,} of {len(traffic):,} requests; the KV pool holds the others.",
        relief=case.capacity.peak_running / max(rest, 1.0),
        began_ts=began,
        undo=undo,
    )


def judge_sharing(case: Case) -> Change:
    """Judges prompts that no longer begin like earlier ones.

    A hit rate that falls while prompts are as much alike as before is a symptom: what they share
    was evicted. Taken back, the prompts since then begin like those before, one after the other.
    """
    kind: CauseKind = "new_traffic"
    name = "prefix hit rate"
    traffic, capacity = case.traffic, case.capacity
    known = traffic.num_shared_tokens >= 0
    if not known.any():
        return rejected(kind, name, "no prompt begins like an earlier one")
    shared = 1000 * np.maximum(traffic.num_shared_tokens, 0) // traffic.num_prompt_tokens
    change = find_change(np.asarray(shared, dtype=np.int64))
    if change is None or change.mean_before - change.mean_after < 1000 * MIN_SHARING_LOST:
        mean = percent(float(shared.mean()) / 1000)
        hits = _hit_rates(case, case.episode.opened_ts)
        return rejected(kind, name, f"{hits}; prompts share {mean} all along")
    began = int(traffic.arrived_ts[change.index])
    number = f"prompts share {percent(change.mean_before / 1000)} -> "
    number += f"{percent(change.mean_after / 1000)} with earlier ones; {_hit_rates(case, began)}"
    own = _blocks_of_own(case)
    before, after = float(own[: change.index].mean()), float(own[change.index :].mean())
    running, undo = capacity.peak_running, _begun_as_before(case, change.index)
    if began > case.episode.opened_ts:
        number += ", after the first one"
        return rejected(kind, name, number, began_ts=began, undo=undo)
    if not case.fits(running, before) or case.fits(running, after):
        return rejected(kind, name, number, began_ts=began, undo=undo)
    return Change(
        kind=kind,
        name=name,
        status="confirmed",
        number=number,
        headline=f"Prompts no longer begin like earlier ones: each takes {after:,.0f} blocks of "
        f"its own, before {before:,.0f}.",
        relief=after / max(before, 1.0),
        began_ts=began,
        undo=undo,
    )


def _begun_as_before(case: Case, index: int) -> Undo:
    """Returns that each prompt from a place on begins like one before it, in their order.

    It takes over the beginning that the earlier one shared itself, as far as it is long enough; a
    prompt that shares more than that keeps what it shares.
    """
    traffic = case.traffic
    prefixes = {}
    for place in range(index, len(traffic)):
        earlier = (place - index) % index
        num_shared = int(traffic.num_shared_tokens[earlier])
        if num_shared > int(traffic.num_shared_tokens[place]):
            donor = int(traffic.request[earlier])
            num_shared = min(num_shared, int(traffic.num_prompt_tokens[place]))
            prefixes[int(traffic.request[place])] = (donor, num_shared)
    return Undo(prefixes=prefixes)


def _blocks_of_own(case: Case) -> Ints:
    """Returns the blocks of each request that it shares with nobody."""
    shared = np.maximum(case.traffic.num_shared_tokens, 0)
    size = case.settings.block_size or 1
    return np.asarray(np.maximum(case.traffic.full_blocks - shared // size, 1))


def _hit_rates(case: Case, began: int) -> str:
    """Returns the part of prompt tokens found in the cache, before and from a moment on."""
    row = read_row(case.log, case.scope.fill(HITS_SQL.replace("{began}", str(began))))
    traffic = case.traffic
    is_before = traffic.arrived_ts < began
    asked = [int(traffic.num_prompt_tokens[side].sum()) for side in (is_before, ~is_before)]
    rates = [
        percent(None if hit is None or not tokens else min(hit / tokens, 1.0))
        for hit, tokens in zip((row["hit_before"], row["hit_after"]), asked, strict=True)
    ]
    return f"hit rate {rates[0]} -> {rates[1]}"
