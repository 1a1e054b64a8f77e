"""Twelve checks, always the same and in the same order, each with its number.

Found, healthy with its number, or not measured and not in use: a check is never missing, so that
what is well can be seen as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dashboard import colours
from diagnose.diagnosis import EngineDiagnosis
from diagnose.finding import Finding, Severity
from diagnose.words import NOT_MEASURED, count, duration, percent, plural

Outcome = Literal["found", "healthy", "quiet"]
RECORDER = "Recorder"
"""The check that no rule makes: its own page tells of it."""
PRESSURE, THRASH = "kv-preemption-pressure", "kv-preemption-thrash"
"""The rules of evictions for want of blocks."""
PART_RULES = (
    "kv-load-failure",
    "remote-kv-wait-stuck",
    "connector-parked-deadlock",
    "connector-save-stuck",
    "connector-ack-stuck",
    "pd-producer-lease-expiry",
    "offload-overhead",
    "lora-slot-contention",
    "spec-decode-unprofitable",
)
"""Rules of a KV connector, of adapters and of drafts; the first that has a number says it."""
BUDGET_RULES = (
    "prefill-head-of-line",
    "prefill-stalls-decode",
    "zero-token-not-budget",
    "grammar-wait-stall",
    "grammar-step-cost",
)
"""Rules of what a step's tokens are spent on, and of grammars."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was looked at, how it is, and the number that says so.

    `quiet` is not measured, or not in use. `rule` is whose page tells more of it; `finding` the id
    of what was found.
    """

    name: str
    outcome: Outcome
    number: str
    severity: Severity | None = None
    rule: str | None = None
    finding: str | None = None


def all_checks(engine: EngineDiagnosis, facts: dict[str, Any]) -> list[Check]:
    """Returns the twelve checks; `facts` is the row of `queries.panels.facts`."""
    return [
        _preemption(engine),
        _recomputed(engine),
        _short(engine, facts),
        _progress(engine),
        _by_rule(engine, "admission-deadlock", "Stuck scheduler"),
        _slots(engine),
        _by_rule(engine, THRASH, "Thrash"),
        _left_over(engine),
        _priority(engine),
        _recorder(engine),
        _parts(engine),
        _token_budget(engine),
    ]


def _finding(engine: EngineDiagnosis, *rules: str) -> Finding | None:
    return next((found for found in engine.findings if found.rule in rules), None)


def _id(finding: Finding | None) -> str | None:
    return None if finding is None else finding.id


def _found(name: str, finding: Finding | None, number: str, rule: str) -> Check:
    if finding is None or finding.severity is Severity.info:
        return Check(name, "healthy", number, rule=rule)
    return Check(name, "found", number, finding.severity, finding.rule, finding.id)


def _preemption(engine: EngineDiagnosis) -> Check:
    account, steps = engine.accounting, engine.steps
    name = "KV preemption"
    if account.counter is None and not account.num_rows and steps.num_preempting_steps is None:
        return Check(name, "quiet", "steps.num_preempted not recorded", rule=PRESSURE)
    number = (
        f"{account.num_rows:,} in {count(steps.num_preempting_steps)} of {steps.num_steps:,} steps"
    )
    return _found(name, _finding(engine, PRESSURE, THRASH), number, PRESSURE)


def _recomputed(engine: EngineDiagnosis) -> Check:
    work = engine.accounting.work
    name = "Recomputed tokens"
    if work.num_recomputed is None:
        return Check(name, "quiet", "steps.num_recomputed_tokens not recorded", rule=PRESSURE)
    number = f"{percent(work.recomputed_ratio)} of {count(work.num_scheduled)} scheduled"
    finding = _finding(engine, PRESSURE, THRASH)
    return _found(name, finding if work.num_recomputed else None, number, PRESSURE)


def _short(engine: EngineDiagnosis, facts: dict[str, Any]) -> Check:
    name, rule = "Queue head short of blocks", "queueing-with-kv-full"
    num_steps, short = facts.get("num_steps"), facts.get("num_short")
    if not num_steps:
        return Check(name, "quiet", "no steps", rule=rule)
    if facts.get("pool") is None:
        return Check(name, "quiet", "engines.num_usable_blocks not recorded", rule=rule)
    number = f"{int(short or 0):,} of {int(num_steps):,} steps"
    if (short or 0) < num_steps / 2:
        return Check(name, "healthy", number, rule=rule)
    finding = _finding(engine, rule, PRESSURE, THRASH)
    return Check(name, "found", number, Severity.high, rule, _id(finding))


def _progress(engine: EngineDiagnosis) -> Check:
    name, rule = "Engine is progressing", "worker-hang"
    stopped = _finding(engine, rule, "admission-deadlock")
    if engine.quality.died_step is not None:
        number = f"died in step {engine.quality.died_step:,}"
        return Check(name, "found", number, Severity.high, rule, _id(stopped))
    if stopped is not None:
        return _found(name, stopped, stopped.symptom, rule)
    finding = _finding(engine, "undetermined")
    if engine.steps.step_max_ns is None:
        return Check(name, "quiet", "steps.updated_ts not recorded", rule=rule)
    return _found(name, finding, f"longest step {duration(engine.steps.step_max_ns)}", rule)


def _by_rule(engine: EngineDiagnosis, rule: str, name: str) -> Check:
    finding = _finding(engine, rule)
    if finding is not None:
        return _found(name, finding, finding.symptom, rule)
    for healthy in engine.healthy:
        if healthy.rule == rule:
            return Check(name, "healthy", healthy.number, rule=rule)
    for silenced in engine.suppressed:
        if silenced.rule == rule:
            return Check(name, "healthy", f"explained by {silenced.by}", rule=rule)
    missing = [said for said in engine.not_measured if said.rule == rule]
    return Check(name, "quiet", missing[0].why if missing else "not judged", rule=rule)


def _slots(engine: EngineDiagnosis) -> Check:
    name, rule = "Sequence slots", "seq-slot-limit"
    running, slots = engine.steps.max_running, engine.settings.slots
    if running is None or slots is None:
        return Check(name, "quiet", "engines.max_num_seqs not recorded", rule=rule)
    return _found(name, _finding(engine, rule), f"at most {running:,} of {slots:,} used", rule)


def _left_over(engine: EngineDiagnosis) -> Check:
    name, rule = "Blocks left over", "kv-block-leak"
    free, pool = engine.steps.last_free_blocks, engine.settings.num_usable_blocks
    if free is None or pool is None:
        return Check(name, "quiet", "free blocks not recorded", rule=rule)
    number = f"{free:,} of {pool:,} free"
    if engine.quality.died_step is not None:
        return Check(name, "quiet", f"{number} when the engine died", rule=rule)
    if engine.steps.last_running or engine.steps.last_waiting:
        return Check(name, "healthy", f"{number}, still at work", rule=rule)
    number += " when drained"
    if free < pool:
        finding = _finding(engine, rule)
        return Check(name, "found", number, Severity.medium, rule, _id(finding))
    return Check(name, "healthy", number, rule=rule)


def _priority(engine: EngineDiagnosis) -> Check:
    account, rule = engine.accounting, "priority-recompute-churn"
    name = "Priority and cache resets"
    count_of = account.num_priority + account.num_cache_reset
    number = f"{count_of:,} of {plural(account.num_rows, 'preemption')}"
    if count_of:
        finding = _finding(engine, rule)
        return Check(name, "found", number, Severity.info, rule, _id(finding))
    return Check(name, "healthy", number, rule=rule)


def _recorder(engine: EngineDiagnosis) -> Check:
    steps, quality = engine.steps, engine.quality
    total = steps.num_steps + steps.num_steps_missing
    number = f"{steps.num_steps:,} of {total:,} steps, {quality.num_records_dropped:,} dropped"
    lost = steps.num_steps_missing or quality.num_records_dropped
    if lost:
        return Check(RECORDER, "found", number, Severity.medium)
    if engine.accounting.unattributed:
        number = f"{engine.accounting.unattributed:,} preemptions unattributed"
        return Check(RECORDER, "found", number, Severity.medium)
    return Check(RECORDER, "healthy", number)


def _parts(engine: EngineDiagnosis) -> Check:
    """What only some engines have: the rules of each that is in use."""
    return _by_rules(engine, PART_RULES, "KV connector, LoRA, drafts")


def _token_budget(engine: EngineDiagnosis) -> Check:
    name = "Token budget, grammar"
    if not engine.steps.token_budget_recorded and _finding(engine, *BUDGET_RULES) is None:
        return Check(name, "quiet", "not recorded by this source", rule=BUDGET_RULES[0])
    return _by_rules(engine, BUDGET_RULES, name)


def _by_rules(engine: EngineDiagnosis, rules: tuple[str, ...], name: str) -> Check:
    """Returns the worst that the rules found; else the number of the first that has one."""
    finding = _finding(engine, *rules)
    if finding is not None:
        return _found(name, finding, finding.symptom, finding.rule)
    judged = {each.rule: each for each in engine.healthy if each.rule in rules}
    used = [judged[rule] for rule in rules if rule in judged and judged[rule].is_used]
    if used:
        return Check(name, "healthy", f"{used[0].name}: {used[0].number}", rule=used[0].rule)
    unknown = [each.rule for each in engine.not_measured if each.rule in rules]
    if unknown:
        return Check(name, "quiet", "not measured", rule=unknown[0])
    return Check(name, "quiet", "not in use")


def shape_of(check: Check) -> str:
    """Returns the sign of a check: that of its severity where something is found."""
    if check.severity is not None:
        return colours.SEVERITIES[check.severity][0]
    return {"found": "▲", "healthy": "✓", "quiet": NOT_MEASURED}[check.outcome]
