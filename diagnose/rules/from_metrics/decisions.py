"""Which rules judge a step record and, by a decision of their own, scrapes."""

from __future__ import annotations

from diagnose.rule import Decide
from diagnose.rules.from_metrics import (
    admission_deadlock,
    guard_light_preemption,
    kv_preemption_pressure,
    kv_preemption_thrash,
    no_scheduler_fault,
    request_exceeds_kv_capacity,
    seq_slot_limit,
)

DECISIONS: dict[str, Decide] = {
    module.RULE.id: module.decide
    for module in (
        admission_deadlock,
        guard_light_preemption,
        kv_preemption_pressure,
        kv_preemption_thrash,
        no_scheduler_fault,
        request_exceeds_kv_capacity,
        seq_slot_limit,
    )
}
"""Rule -> what it says of scrapes."""
