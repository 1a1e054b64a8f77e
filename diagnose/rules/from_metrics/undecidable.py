"""Problems that no scrape can tell: each with what would, as the record names it.

They stand in every verdict from scrapes, so that silence about them is not taken for health.
"""

from __future__ import annotations

from diagnose.finding import NotMeasured

WHY = "no scrape tells: a step record does"

UNDECIDABLE: dict[str, tuple[str, ...]] = {
    "preempt-zero-reclaim-cascade": ("steps.num_blocks_deferred_free", "preemptions.step"),
    "kv-head-of-line": ("steps.head_blocks_needed", "steps.min_follower_blocks_needed"),
    "prefill-head-of-line": ("steps.top_request_tokens", "steps.token_budget"),
    "priority-inversion": ("request_arrivals.priority",),
    "connector-parked-deadlock": ("steps.num_loaded_not_promoted", "steps.num_blocks_waiting"),
    "offload-overhead": ("connector_loads.load_ns",),
    "grammar-wait-stall": ("wait_reasons.wait_reason",),
    "encoder-budget-zero-progress": ("steps.encoder_budget", "step_requests.zero_reason"),
    "prefix-cache-thrash": ("request_events.num_missed_blocks_seen_before",),
    "hybrid-cache-alignment": ("request_events.num_hit_tokens_full_group",),
    "prefix-identity-miss": ("request_arrivals.shared_content_blocks",),
    "client-abort-leak": ("request_events.kind",),
    "connector-save-stuck": ("request_events.kind",),
    "connector-ack-stuck": ("request_events.kind",),
    "queueing-with-kv-full": ("steps.stop_reason", "steps.head_request"),
    "prompt-mix-exceeds-limits": ("requests.num_prompt_tokens",),
    "priority-recompute-churn": ("preemptions.victim_priority",),
    "gpu-memory-headroom": ("engines.memory_total_bytes",),
    "grammar-step-cost": ("steps.bitmask_ns",),
    "zero-token-not-budget": ("step_requests.zero_reason",),
}
"""Rule -> what it needs."""


def undecidable() -> tuple[NotMeasured, ...]:
    """Returns that none of them could be judged."""
    return tuple(
        NotMeasured(rule=rule, missing=missing, why=WHY) for rule, missing in UNDECIDABLE.items()
    )
