"""What an episode of preemptions cost, in tokens, requests and pauses."""

from __future__ import annotations

from diagnose.finding import Impact
from diagnose.reading import NS
from diagnose.storm import Storm
from diagnose.words import count, duration, percent, plural


def impact_of(storm: Storm) -> Impact:
    """Returns what an episode cost, in tokens, requests and pauses."""
    account, pauses = storm.account, storm.pauses
    loss, work = account.loss, account.work
    again = f"{count(loss.num_recomputed)} computed again"
    if work.recomputed_ratio is not None:
        again += f" = {percent(work.recomputed_ratio)} of {count(work.num_scheduled)} scheduled"
    cost = [f"{count(loss.num_lost)} computed tokens lost; {again}"]
    evicted = f"{account.num_affected:,} of {plural(account.num_requests, 'request')} evicted"
    evicted += f", up to {plural(account.max_times, 'time')}"
    if account.evicted_ns is not None and account.request_ns:
        out, total = account.evicted_ns / NS, account.request_ns / NS
        evicted += f"; {out:,.1f} of {total:,.1f} request-seconds spent evicted"
    cost.append(evicted)
    if storm.num_others:
        cost.append(f"{plural(storm.num_others, 'further episode')} in this window, less severe")
    users = []
    if pauses.evicted_p95_ns is not None:
        felt = f"longest pause in an answer p95 {duration(pauses.evicted_p95_ns)} "
        felt += f"for the {pauses.num_evicted:,} evicted"
        if pauses.calm_p95_ns is not None:
            felt += f", {duration(pauses.calm_p95_ns)} for the other {pauses.num_calm:,}"
        users.append(felt)
    return Impact(
        cost=tuple(cost),
        users=tuple(users),
        numbers=(
            ("num_preemptions", account.num_from_kv),
            ("num_tokens_lost", loss.num_lost),
            ("num_tokens_recomputed", loss.num_recomputed),
            ("recomputed_ratio", work.recomputed_ratio),
            ("num_requests_evicted", account.num_affected),
            ("num_requests", account.num_requests),
            ("max_times", account.max_times),
            ("evicted_ns", account.evicted_ns),
            ("request_ns", account.request_ns),
            ("evicted_pause_p95_ns", pauses.evicted_p95_ns),
            ("calm_pause_p95_ns", pauses.calm_p95_ns),
        ),
    )
