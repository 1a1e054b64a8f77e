"""Every alert there is, in order, and why the other rules have none."""

from __future__ import annotations

from types import ModuleType

from diagnose.alerts.alert import Alert
from diagnose.rules import RULES
from diagnose.rules.from_metrics import (
    admission_deadlock,
    deferred_slot_exhaustion,
    dp_rank_imbalance,
    frontend_cpu_bound,
    guard_light_preemption,
    kv_block_leak,
    kv_load_failure,
    kv_preemption_pressure,
    kv_preemption_thrash,
    lora_slot_contention,
    pd_producer_lease_expiry,
    prefill_stalls_decode,
    remote_kv_wait_stuck,
    seq_slot_limit,
    spec_decode_unprofitable,
    worker_hang,
)
from diagnose.rules.from_metrics.undecidable import UNDECIDABLE

_MODULES: tuple[ModuleType, ...] = (
    guard_light_preemption,
    pd_producer_lease_expiry,
    remote_kv_wait_stuck,
    deferred_slot_exhaustion,
    kv_block_leak,
    admission_deadlock,
    worker_hang,
    kv_load_failure,
    kv_preemption_thrash,
    kv_preemption_pressure,
    seq_slot_limit,
    lora_slot_contention,
    prefill_stalls_decode,
    dp_rank_imbalance,
    spec_decode_unprofitable,
    frontend_cpu_bound,
)

ALERTS: dict[str, Alert] = {module.ALERT.rule: module.ALERT for module in _MODULES}
"""Rule -> what Prometheus watches for it, in the rules' order of evaluation."""

RECORDS: dict[str, str] = {
    name: expr for module in _MODULES for name, expr in getattr(module, "RECORDS", {}).items()
}
"""Series that conditions are built from -> their PromQL."""

_UNWATCHED = {
    "request-exceeds-kv-capacity": "no page tells max_model_len, or how long a request is",
    "gpu-memory-overcommit-oom": "an engine out of memory answers no scrape; its log tells",
    "kv-pool-shrunk-by-reserve": "the pool stands in labels, and PromQL makes no number of a label",
    "guard-counter-reset": "increase() and rate() see to it",
    "guard-idle-broadcast-noise": "it explains a line of the log, which no alert reads",
    "guard-kv-gauge-misread": "no alert is built on the gauge alone",
    "guard-kv-high-healthy": "no alert is built on the gauge alone",
    "guard-prefix-hit-inflated": "no alert is built on the hit rate",
    "no-scheduler-fault": "it says that nothing was found",
}

NO_ALERT: dict[str, str] = {
    rule: _UNWATCHED.get(rule, f"only a step record tells: {', '.join(UNDECIDABLE.get(rule, ()))}")
    for rule in RULES
    if rule not in ALERTS
}
"""Rule -> why Prometheus cannot watch for it; what the recorder finds alerts all the same."""


def silencers(alert: Alert) -> tuple[Alert, ...]:
    """Returns the conditions that explain this one away: those of the rules that silence it."""
    return tuple(ALERTS[rule] for rule in RULES[alert.rule].silenced_by if rule in ALERTS)
