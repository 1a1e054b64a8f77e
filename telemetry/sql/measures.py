"""Unit and polarity of the record's columns: the unit from the name, the polarity from a list.

Names carry their units (`_ns`, `_bytes`, `num_..._tokens`), so a new column has one by itself.
Views say both at the head of their own files.
"""

from __future__ import annotations

from telemetry.records import Column
from telemetry.sql.documentation import Polarity

_SUFFIXES = {"_ns": "ns", "_bytes": "bytes", "_ratio": "ratio"}
_NOUNS = {
    noun: "embeddings" if noun == "embeds" else noun
    for noun in (
        *("tokens", "blocks", "embeds", "requests", "steps", "events", "adapters", "loads"),
        *("preemptions", "errors", "inputs"),
    )
}
"""What a column counts, by the word in its name that says so."""
_UNITS = {
    "arrival_time": "s",
    "watermark": "ratio",
    "gpu_memory_utilization": "ratio",
    "block_size": "tokens",
    "token_budget": "tokens",
    "encoder_budget": "embeddings",
    "encoder_cache_free": "embeddings",
    "encoder_cache_reclaimable": "embeddings",
    "item_embeds": "embeddings",
    "position": "tokens",
    "item_positions": "tokens",
    "max_num_seqs": "requests",
    "max_num_active_seqs": "requests",
    "max_num_batched_tokens": "tokens",
    "max_num_scheduled_tokens": "tokens",
    "max_model_len": "tokens",
    "max_tokens": "tokens",
    "min_tokens": "tokens",
    "top_request_tokens": "tokens",
    "head_blocks_needed": "blocks",
    "min_follower_blocks_needed": "blocks",
    "shared_content_blocks": "blocks",
    "long_prefill_token_threshold": "tokens",
    "max_loras": "adapters",
    "num_repeats": "steps",
    "num_step_requests": "rows",
    "num_commits": "commits",
    "num_drafted": "tokens",
    "num_placed": "tokens",
    "num_accepted": "tokens",
    "num_drafts": "tokens",
    "num_withdrawn_drafts": "tokens",
    "num_admitted": "requests",
    "num_resumed": "requests",
    "num_preempted": "requests",
    "num_running": "requests",
    "num_waiting": "requests",
    "num_skipped_waiting": "requests",
    "num_kv_holding_waiting": "requests",
    "num_loaded_not_promoted": "requests",
    "drafts_placed": "tokens",
    "drafts_accepted": "tokens",
    "draft_counts": "tokens",
    "host_cpu_count": "cores",
    "attributes": "JSON",
    "num_rows": "rows",
    "num_openings": "openings",
    "num_read": "pages, lines, spans or messages",
    "num_unread": "pages, lines, spans or messages",
}

LOWER_IS_BETTER = frozenset(
    {
        *("schedule_ns", "bitmask_ns", "inputs_ns", "forward_ns", "draft_ns", "sample_ns"),
        *("connector_ns", "update_ns", "oldest_load_ns", "service_ns", "phase_age_ns"),
        *("queue_ns", "prefill_ns", "decode_ns", "preempted_ns", "load_ns"),
        *("mean_itl_ns", "max_itl_ns", "ttft_ns", "e2e_ns"),
        *("num_recomputed_tokens", "num_padding_tokens", "num_zero_requests"),
        *("num_waiting", "num_skipped_waiting", "num_kv_holding_waiting"),
        *("num_loaded_not_promoted", "num_blocks_waiting", "num_blocks_finished"),
        *("num_blocks_deferred_free", "num_blocks_given_up", "num_blocks_deferred"),
        *("num_resumed", "num_preempted", "num_preemptions", "num_preemptions_total"),
        *("num_computed_tokens_lost", "num_missed_blocks_seen_before", "num_invalid_blocks"),
        *("num_recorder_errors", "throttled", "num_openings"),
    }
)
"""Columns of tables of which less is better."""

HIGHER_IS_BETTER = frozenset(
    {
        *("num_prefix_hit_tokens", "num_external_tokens", "num_hit_tokens", "num_shared_tokens"),
        *("num_hit_tokens_full_group", "num_accepted", "drafts_accepted", "num_output_tokens"),
        *("encoder_cache_free", "num_blocks_free_cached", "num_usable_blocks", "num_kv_tokens"),
        *("memory_kv_bytes", "beneficiary_allocated"),
    }
)
"""Columns of tables of which more is better."""


def unit_of(column: Column) -> str:
    """Returns the unit of a table's column; `-` where it has none."""
    name = column.name
    if name in _UNITS:
        return _UNITS[name]
    if name == "ts" or name.endswith("_ts"):
        return "ns"
    for suffix, unit in _SUFFIXES.items():
        if name.endswith(suffix):
            return unit
    if name.startswith("num_"):
        return next((unit for noun, unit in _NOUNS.items() if noun in name.split("_")), "-")
    return "-"


def polarity_of(column: Column) -> Polarity:
    """Returns which way is better."""
    if column.name in LOWER_IS_BETTER:
        return "lower"
    return "higher" if column.name in HIGHER_IS_BETTER else "-"
