"""Signs in scrapes that something is stuck, for the case that no rule explains it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnose.finding import Evidence, Severity, Span
from diagnose.rule import Context
from diagnose.rules.from_metrics.worker_hang import still_runners
from diagnose.rules.worker_hang import MIN_STILL_NS
from diagnose.scrapes.metric_facts import Floats, Mask, MetricFacts
from diagnose.scrapes.metric_finding import number, span_of, span_of_window
from diagnose.stalls import MIN_GROWTH, MIN_QUEUE
from diagnose.words import duration, percent, plural

MIN_WAITING_SHARE = 0.9
"""Share of the scrapes at which somebody waits, for a queue that does not go away. Starting
value."""
MIN_WAITING_RATIO = 0.25
"""Mean of those that wait against those that run, from which it is a queue. Starting value: a
request that has just come waits for the next step too."""
MIN_WAITING = 2
"""Most that waited at once, at least. Starting value."""
FULL_KV = 0.85
"""KV gauge from which blocks may be what they wait for. Source: playbook, `seq-slot-limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricStall:
    """Something that does not move: a sentence, its numbers, and what would explain it."""

    sentence: str
    severity: Severity
    span: Span
    evidence: tuple[Evidence, ...]
    missing: tuple[str, ...]


def find_metric_stall(context: Context, facts: MetricFacts) -> MetricStall | None:
    """Returns the worst sign of standing still; `None` where everything moves."""
    return _still_runners(facts) or _growing_queue(context, facts) or _lasting_queue(context, facts)


def _still_runners(facts: MetricFacts) -> MetricStall | None:
    still = still_runners(facts)
    if still is None:
        return None
    running = round(float(np.nanmax(facts.columns["num_running"][still.scrapes])))
    requests = f"{running:,} running {'request' if running == 1 else 'requests'}"
    return MetricStall(
        sentence=f"{requests} got no token for {duration(still.duration_ns)}, and none was counted "
        "before: a first compile, a hang or steps that give nobody a token",
        severity=Severity.critical,
        span=span_of(still),
        evidence=(
            number(
                facts, "time with running requests and no token", still.duration_ns, "ns",
                "(max(ts) - min(ts))::BIGINT", facts.between(still), threshold=MIN_STILL_NS,
                n=still.num_scrapes,
            ),
        ),
        missing=("steps.num_scheduled_tokens", "step_requests.zero_reason"),
    )  # fmt: skip


def _growing_queue(context: Context, facts: MetricFacts) -> MetricStall | None:
    waiting = facts["num_waiting"].values
    known = waiting[np.isfinite(waiting)]
    if len(known) < 4:
        return None
    first, *_, last = (float(np.mean(part)) for part in np.array_split(known, 4))
    if last < MIN_QUEUE or last < MIN_GROWTH * max(first, 1) or known[-1] < np.max(known) * 0.9:
        return None
    return MetricStall(
        sentence=f"The queue only grows: {first:.0f} requests in the first quarter, {last:.0f} in "
        f"the last; {_limits(context, facts, waiting > 0)}",
        severity=Severity.medium,
        span=span_of_window(facts),
        evidence=(_mean_waiting(facts, waiting), _highest(facts, waiting)),
        missing=_what_is_missing(facts),
    )


def _lasting_queue(context: Context, facts: MetricFacts) -> MetricStall | None:
    waiting, running = facts["num_waiting"].values, facts["num_running"].values
    queued = waiting > 0
    share = float(queued.sum() / max(int(np.isfinite(waiting).sum()), 1))
    if share < MIN_WAITING_SHARE or (facts["num_waiting"].max or 0) < MIN_WAITING:
        return None
    if np.nanmean(waiting) < MIN_WAITING_RATIO * np.nanmean(running):
        return None
    return MetricStall(
        sentence=f"Requests wait at {int(queued.sum()):,} of "
        f"{plural(facts.num_scrapes, facts.noun)}, {np.nanmean(waiting):.1f} on average; "
        f"{_limits(context, facts, queued)}",
        severity=Severity.medium,
        span=span_of_window(facts),
        evidence=(_mean_waiting(facts, waiting), _highest(facts, waiting)),
        missing=_what_is_missing(facts),
    )


def _limits(context: Context, facts: MetricFacts, queued: Mask) -> str:
    """Returns where slots and blocks stood while somebody waited, and who was set aside."""
    running = facts["num_running"].within(queued).max or 0
    slots = context.settings.slots
    told = [f"{running:,.0f} ran at most" + ("" if slots is None else f" on {slots:,} slots")]
    used = facts["kv_cache_usage_ratio"].within(queued).max
    if used is not None:
        told.append(f"KV at most {percent(used)}")
    deferred = facts["num_waiting_deferred"].within(queued).max
    if deferred:
        told.append(f"up to {deferred:,.0f} set aside")
    return ", ".join(told)


def _mean_waiting(facts: MetricFacts, waiting: Floats) -> Evidence:
    mean = round(float(np.nanmean(waiting)), 2)
    return number(facts, "requests waiting, mean", mean, "requests", "round(avg(num_waiting), 2)")


def _highest(facts: MetricFacts, waiting: Floats) -> Evidence:
    highest = round(float(np.nanmax(waiting)))
    return number(
        facts, "requests waiting, most", highest, "requests", "max(num_waiting)",
        threshold=MIN_WAITING,
    )  # fmt: skip


def _what_is_missing(facts: MetricFacts) -> tuple[str, ...]:
    """Returns what would say why they wait."""
    if facts["num_waiting_deferred"].max:
        return ("wait_reasons.wait_reason",)
    split = facts.missing("num_waiting_capacity")
    return (*split, "steps.stop_reason", "steps.head_blocks_needed")
