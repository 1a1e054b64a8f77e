"""request-exceeds-kv-capacity, from scrapes alone: the settings say it, the gauges bear it out.

No scrape has a request's length. What is known is whether `max_model_len` lets in more than the
pool holds, and whether somebody waits for capacity while the whole pool lies empty.
"""

from __future__ import annotations

import numpy as np

from diagnose.advice import VERIFY
from diagnose.finding import Action, Cause, Finding, Healthy, Impact, RuleVerdict, Severity
from diagnose.reading import NS
from diagnose.rule import Context, Earlier
from diagnose.rules.request_exceeds_kv_capacity import ID, RULE
from diagnose.saying import not_measured
from diagnose.scrapes.metric_facts import MetricFacts, Stretch
from diagnose.scrapes.metric_finding import facts_of, found, number, span_of, too_few
from diagnose.words import duration, plural

MIN_STUCK_NS = 30 * NS
"""How long the pool has to lie empty. Source: playbook, as for `admission-deadlock`."""
EMPTY_KV = 0.01
"""KV gauge up to which the pool is empty. Starting value."""


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where the head waits for an empty pool that may be too small for it."""
    settings, facts = context.settings, facts_of(context)
    if (few := too_few(context, ID)) is not None:
        return few
    longest, pool = settings.max_model_len, settings.pool_tokens
    if longest is None or pool is None:
        missing = [] if longest is not None else ["engines.max_model_len"]
        missing += [] if pool is not None else ["engines.num_usable_blocks"]
        return not_measured(ID, (*missing, "request_arrivals.num_prompt_tokens"), "not known")
    if longest <= pool:
        number_ = f"max_model_len {longest:,} fits the pool, {pool:,} tokens"
        return Healthy(rule=ID, name="oversized", number=number_)
    stuck = _empty_but_waiting(facts)
    if stuck is None:
        why = f"max_model_len {longest:,} is more than the pool's {pool:,} tokens"
        return not_measured(ID, ("request_arrivals.num_prompt_tokens",), why)
    return _finding(context, facts, stuck, longest, pool)


def _empty_but_waiting(facts: MetricFacts) -> Stretch | None:
    running, usage = facts["num_running"].values, facts["kv_cache_usage_ratio"].values
    waits = facts.waiting_for_capacity.values > 0
    deferred = np.nan_to_num(facts.columns["num_waiting_deferred"]) > 0
    return facts.longest(
        (running == 0) & (usage <= EMPTY_KV) & waits & ~deferred,
        facts.num_tokens.values == 0,
        min_ns=MIN_STUCK_NS,
    )


def _finding(
    context: Context, facts: MetricFacts, stuck: Stretch, longest: int, pool: int
) -> Finding:
    waiting = round(float(np.nanmax(facts.columns["num_waiting"][stuck.scrapes])))
    return found(
        context,
        RULE,
        severity=Severity.critical,
        span=span_of(stuck),
        sentence=f"max_model_len lets in requests of {longest:,} tokens, the whole pool holds "
        f"{pool:,}: {plural(waiting, 'request')} waited {duration(stuck.duration_ns)} for it",
        symptom=f"{plural(waiting, 'request')} wait for capacity with an empty pool",
        cause=Cause(
            kind="oversized_request",
            sentence=f"oversized request: up to {longest:,} tokens let in, {pool:,} fit (inferred)",
        ),
        confidence=("medium", "no scrape has the length of the request at the head"),
        evidence=(
            number(
                facts,
                "time with an empty pool and requests waiting",
                stuck.duration_ns,
                "ns",
                "(max(ts) - min(ts))::BIGINT",
                facts.between(stuck),
                threshold=MIN_STUCK_NS,
                n=stuck.num_scrapes,
            ),
        ),
        impact=Impact(
            cost=(f"{plural(waiting, 'request')} waited without a token",),
            numbers=(("num_waiting", waiting),),
        ),
        actions=(
            Action(
                what="take no request that the pool cannot hold",
                flag="--max-model-len",
                old=str(longest),
                new=str(pool),
                applies="restart",
                trade_off="longer requests are refused at once",
                verify=VERIFY,
                revert=f"--max-model-len {longest}",
            ),
        ),
        missing=("request_arrivals.num_prompt_tokens",),
    )
