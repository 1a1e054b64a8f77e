"""The rules: one problem a file, its page inside, in the order in which they are evaluated.

Guards first; then what can never run and what stands still; then evictions, the worse kind before
the milder; then slots; last the verdict that nothing was found.
"""

from __future__ import annotations

from diagnose.rule import Rule
from diagnose.rules import (
    admission_deadlock,
    guard_light_preemption,
    kv_preemption_pressure,
    kv_preemption_thrash,
    no_scheduler_fault,
    request_exceeds_kv_capacity,
    seq_slot_limit,
)

RULES: dict[str, Rule] = {
    module.RULE.id: module.RULE
    for module in (
        guard_light_preemption,
        request_exceeds_kv_capacity,
        admission_deadlock,
        kv_preemption_thrash,
        kv_preemption_pressure,
        seq_slot_limit,
        no_scheduler_fault,
    )
}
"""Every rule by its id, in order of evaluation."""


def find_rule(rule_id: str) -> Rule:
    """Returns a rule.

    Raises:
        KeyError: there is none of this name; the message lists those there are.
    """
    if rule_id not in RULES:
        raise KeyError(f"no rule is called {rule_id!r}: there are {', '.join(sorted(RULES))}")
    return RULES[rule_id]
