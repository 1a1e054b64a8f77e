"""The rules: one problem a file, its page inside, in the order in which they are evaluated.

Guards first; then what can never run, what never comes back and what stands still; then evictions,
the worse kind before the milder; then blocks, slots, adapters and what slows answers down; then the
prefix cache, what lies outside the scheduler and what is only worth knowing; last the verdict that
nothing was found. A rule judges the record of an engine's steps, or scrapes of an engine
without one (`from_metrics`), or both.
"""

from __future__ import annotations

from dataclasses import replace

from diagnose.rule import Rule
from diagnose.rules import (
    admission_deadlock,
    client_abort_leak,
    connector_ack_stuck,
    connector_parked_deadlock,
    connector_save_stuck,
    deferred_slot_exhaustion,
    dp_rank_imbalance,
    encoder_budget_zero_progress,
    frontend_cpu_bound,
    gpu_memory_headroom,
    gpu_memory_overcommit_oom,
    grammar_step_cost,
    grammar_wait_stall,
    guard_counter_reset,
    guard_idle_broadcast_noise,
    guard_kv_gauge_misread,
    guard_kv_high_healthy,
    guard_light_preemption,
    guard_prefix_hit_inflated,
    hybrid_cache_alignment,
    kv_block_leak,
    kv_head_of_line,
    kv_load_failure,
    kv_pool_shrunk_by_reserve,
    kv_preemption_pressure,
    kv_preemption_thrash,
    lora_slot_contention,
    no_scheduler_fault,
    offload_overhead,
    pd_producer_lease_expiry,
    preempt_zero_reclaim_cascade,
    prefill_head_of_line,
    prefill_stalls_decode,
    prefix_cache_thrash,
    prefix_identity_miss,
    priority_inversion,
    priority_recompute_churn,
    prompt_mix_exceeds_limits,
    queueing_with_kv_full,
    remote_kv_wait_stuck,
    request_exceeds_kv_capacity,
    seq_slot_limit,
    spec_decode_unprofitable,
    worker_hang,
    zero_token_not_budget,
)
from diagnose.rules.from_metrics.decisions import DECISIONS

_MODULES = (
    guard_counter_reset,
    guard_idle_broadcast_noise,
    guard_kv_gauge_misread,
    guard_kv_high_healthy,
    guard_prefix_hit_inflated,
    guard_light_preemption,
    request_exceeds_kv_capacity,
    gpu_memory_overcommit_oom,
    pd_producer_lease_expiry,
    connector_parked_deadlock,
    remote_kv_wait_stuck,
    connector_save_stuck,
    connector_ack_stuck,
    encoder_budget_zero_progress,
    grammar_wait_stall,
    deferred_slot_exhaustion,
    kv_block_leak,
    admission_deadlock,
    worker_hang,
    kv_load_failure,
    preempt_zero_reclaim_cascade,
    kv_preemption_thrash,
    kv_preemption_pressure,
    priority_recompute_churn,
    kv_head_of_line,
    queueing_with_kv_full,
    seq_slot_limit,
    priority_inversion,
    lora_slot_contention,
    prefill_head_of_line,
    prefill_stalls_decode,
    zero_token_not_budget,
    dp_rank_imbalance,
    spec_decode_unprofitable,
    offload_overhead,
    hybrid_cache_alignment,
    prefix_cache_thrash,
    prefix_identity_miss,
    grammar_step_cost,
    client_abort_leak,
    kv_pool_shrunk_by_reserve,
    frontend_cpu_bound,
    prompt_mix_exceeds_limits,
    gpu_memory_headroom,
    no_scheduler_fault,
)

RULES: dict[str, Rule] = {
    module.RULE.id: replace(module.RULE, decide_metrics=DECISIONS[module.RULE.id])
    if module.RULE.id in DECISIONS
    else module.RULE
    for module in _MODULES
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
