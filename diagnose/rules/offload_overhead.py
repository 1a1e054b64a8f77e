"""offload-overhead: loading KV from a tier takes longer than computing it.

What it measures
----------------
Time of finished loads for each loaded token, from asking to done, against the time of steps that
mostly compute prompts for each of their tokens. The rule fires where the median load takes longer
and the KV pool was less than 60 % used (median), over 20 loads or more.

Why it matters
--------------
A tier is meant to save prefill. Loads that queue behind each other cost more than they save:
requests are set aside while the device has nothing to do.

When it stays quiet
-------------------
Without loads from outside there is nothing to judge, and no fault. A few late loads among quick
ones move no median. With a full pool a slow tier may still be what keeps requests from being
computed again and again.

What to do
----------
Compare with the connector off. Load in parallel, or keep the tier for prefixes that are long enough
to pay.

Source
------
Report of an engine that gave 267 tokens/s without its offload tier and 158 with it. 60 %: playbook;
20 loads: starting value.
"""

from __future__ import annotations

from typing import Any

from diagnose.advice import advise
from diagnose.finding import Cause, Finding, Impact, RuleVerdict, Severity
from diagnose.rule import Context, Earlier, Rule
from diagnose.saying import finding, healthy, measured, not_measured, span_to, unused
from diagnose.words import connector_name, duration, percent, plural

ID = "offload-overhead"

MIN_LOADS = 20
"""Finished loads. Starting value."""
MIN_RATIO = 1.0
"""Time to load a token against time to compute one."""
MAX_KV_USED = 0.6
"""Median part of the KV pool in use. Source: playbook."""

LOADS_SQL = """
SELECT count(*) AS num_loads, sum(num_tokens)::BIGINT AS num_tokens,
       sum(ended_ts - ts)::BIGINT AS asked_ns, sum(service_ns)::BIGINT AS service_ns,
       count(service_ns) AS num_served,
       min(ts) AS first_ts, max(ended_ts) AS last_ts,
       median((ended_ts - ts) / num_tokens)::DOUBLE AS load_ns
FROM connector_loads
WHERE {where} AND outcome = 'finished' AND num_tokens > 0 AND item_key IS NULL
"""
COMPUTE_SQL = """
SELECT count(*) AS num_steps,
       (sum(updated_ts - ts) / nullif(sum(num_scheduled_tokens), 0))::DOUBLE AS compute_ns
FROM steps
WHERE {where} AND num_prefill_tokens + num_recomputed_tokens > 0.5 * num_scheduled_tokens
"""
USED_SQL = "SELECT median(usage_ratio) AS used FROM kv_pressure WHERE {where}"


def decide(context: Context, earlier: Earlier) -> RuleVerdict:
    """Returns a finding where a token is loaded more slowly than computed."""
    loads = context.row(LOADS_SQL)
    if not loads["num_loads"]:
        return unused(ID, "KV tiers", "no load from outside")
    if loads["num_loads"] < MIN_LOADS:
        why = f"{plural(loads['num_loads'], 'load')}, {MIN_LOADS} are needed"
        return not_measured(ID, ("connector_loads.load_ns",), why)
    compute, used = context.row(COMPUTE_SQL), context.row(USED_SQL)["used"]
    if not compute["num_steps"] or compute["compute_ns"] is None or used is None:
        missing = ("steps.num_prefill_tokens", "kv_pressure.usage_ratio")
        return not_measured(ID, missing, "no step to compare with")
    ratio = loads["load_ns"] / compute["compute_ns"]
    if ratio <= MIN_RATIO or used >= MAX_KV_USED:
        number = f"a loaded token takes {ratio:.2f} x a computed one, KV {percent(used)} used"
        return healthy(ID, "KV tiers", number)
    return _finding(context, loads | compute | {"ratio": ratio, "used": used})


def _finding(context: Context, seen: dict[str, Any]) -> Finding:
    sql, loads = context.scope.fill(LOADS_SQL), plural(seen["num_loads"], "load")
    queued = ""
    if seen["num_served"] == seen["num_loads"]:
        queued = f"; {percent(1 - seen['service_ns'] / seen['asked_ns'])} of it is waiting"
    return finding(
        context,
        RULE,
        severity=Severity.medium,
        span=span_to(context, seen["first_ts"], seen["last_ts"]),
        sentence=f"Loading a token through {connector_name(context.settings.kv_connector)} took "
        f"{seen['ratio']:.1f} times as long as computing one at the median ({loads}){queued}; "
        f"{percent(seen['used'])} of the KV pool was in use",
        symptom=f"{duration(seen['load_ns'])} for a loaded token, "
        f"{duration(seen['compute_ns'])} for a computed one",
        cause=Cause(
            kind="setting",
            sentence="setting: the connector is asked although computing would be quicker",
        ),
        confidence=("medium", "a comparison with the connector off decides"),
        evidence=(
            measured(
                "time for a loaded token against a computed one", seen["ratio"], "x", sql,
                threshold=MIN_RATIO, n=seen["num_loads"], provenance="derived",
            ),
            measured(
                "time for a computed token", seen["compute_ns"], "ns",
                context.scope.fill(COMPUTE_SQL), n=seen["num_steps"],
            ),
            measured(
                "KV pool in use, median", seen["used"], "ratio", context.scope.fill(USED_SQL),
                threshold=MAX_KV_USED,
            ),
        ),
        impact=Impact(
            cost=(f"{duration(seen['asked_ns'])} spent waiting for {loads}",),
            numbers=(("load_ns", seen["asked_ns"]), ("num_tokens", seen["num_tokens"])),
        ),
        num_affected=seen["num_loads"],
        actions=(
            advise(
                "compare with the connector off; load in parallel, or only long prefixes",
                trade_off="prefixes that the pool has lost are computed again",
            ),
        ),
    )  # fmt: skip


RULE = Rule(
    id=ID,
    version=1,
    prefix="ofo",
    page=__doc__ or "",
    decide=decide,
    silenced_by=("remote-kv-wait-stuck",),
)
