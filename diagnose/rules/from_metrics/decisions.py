"""Which rules judge a step record and, by a decision of their own, scrapes."""

from __future__ import annotations

from diagnose.rule import Decide
from diagnose.rules.from_metrics import (
    admission_deadlock,
    deferred_slot_exhaustion,
    dp_rank_imbalance,
    frontend_cpu_bound,
    gpu_memory_overcommit_oom,
    guard_light_preemption,
    kv_block_leak,
    kv_load_failure,
    kv_pool_shrunk_by_reserve,
    kv_preemption_pressure,
    kv_preemption_thrash,
    lora_slot_contention,
    no_scheduler_fault,
    pd_producer_lease_expiry,
    prefill_stalls_decode,
    remote_kv_wait_stuck,
    request_exceeds_kv_capacity,
    seq_slot_limit,
    spec_decode_unprofitable,
    worker_hang,
)

DECISIONS: dict[str, Decide] = {
    module.RULE.id: module.decide
    for module in (
        admission_deadlock,
        deferred_slot_exhaustion,
        dp_rank_imbalance,
        frontend_cpu_bound,
        gpu_memory_overcommit_oom,
        guard_light_preemption,
        kv_block_leak,
        kv_load_failure,
        kv_pool_shrunk_by_reserve,
        kv_preemption_pressure,
        kv_preemption_thrash,
        lora_slot_contention,
        no_scheduler_fault,
        pd_producer_lease_expiry,
        prefill_stalls_decode,
        remote_kv_wait_stuck,
        request_exceeds_kv_capacity,
        seq_slot_limit,
        spec_decode_unprofitable,
        worker_hang,
    )
}
"""Rule -> what it says of scrapes."""
