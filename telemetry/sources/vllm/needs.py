"""The names of vLLM's own code that each feature of the record stands on.

They are private to vLLM and may change in any version: `compatibility` looks for each of them. A
name that is used and not here is a fault of ours. The methods that are hooked are not here, they
are read off the hooks (`hooking`).

Source: vLLM 0.32, vllm/v1/core/sched/scheduler.py and the classes that it works with.
"""

from __future__ import annotations

from collections.abc import Mapping

CLASSES: Mapping[str, str] = {
    "BlockPool": "vllm.v1.core.block_pool",
    "DraftTokenIds": "vllm.v1.outputs",
    "ECConnectorBase": "vllm.distributed.ec_transfer.ec_connector.base",
    "EncoderCacheManager": "vllm.v1.core.encoder_cache_manager",
    "EngineCoreOutput": "vllm.v1.engine",
    "FreeKVCacheBlockQueue": "vllm.v1.core.kv_cache_utils",
    "KVCacheBlock": "vllm.v1.core.kv_cache_utils",
    "KVCacheCoordinator": "vllm.v1.core.kv_cache_coordinator",
    "KVCacheManager": "vllm.v1.core.kv_cache_manager",
    "KVConnectorBase_V1": "vllm.distributed.kv_transfer.kv_connector.v1.base",
    "KVConnectorOutput": "vllm.v1.outputs",
    "ModelRunnerOutput": "vllm.v1.outputs",
    "Request": "vllm.v1.request",
    "RequestStatus": "vllm.v1.request",
    "SchedulerOutput": "vllm.v1.core.sched.output",
    "SingleTypeKVCacheManager": "vllm.v1.core.single_type_kv_cache_manager",
    "StructuredOutputRequest": "vllm.v1.structured_output.request",
}
"""Where vLLM keeps the classes that are looked through, besides the scheduler's own."""

NEEDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "step_rows": {
        "Scheduler": (
            "has_requests()",
            "vllm_config",
            "scheduler_config",
            "lora_config",
            "policy",
            "pause_state",
            "requests",
            "running",
            "waiting",
            "kv_holding_waiting",
            "deferred_waiting",
            "kv_cache_manager",
            "max_model_len",
            "max_num_scheduled_tokens",
            "num_sampled_tokens_per_step",
            "prefill_capacity_bound",
            "recompute_kv_load_failures",
        ),
        "SchedulerOutput": (
            "num_scheduled_tokens",
            "total_num_scheduled_tokens",
            "scheduled_spec_decode_tokens",
        ),
        "ModelRunnerOutput": ("sampled_token_ids", "req_id_to_index"),
        "EngineCoreOutput": ("request_id", "new_token_ids"),
        "KVCacheManager": (
            "block_pool",
            "coordinator",
            "empty_kv_cache_blocks",
            "watermark_blocks",
        ),
        "KVCacheCoordinator": ("single_type_managers",),
        "SingleTypeKVCacheManager": (
            "block_size",
            "max_admission_blocks_per_request",
            "req_to_blocks",
        ),
        "BlockPool": ("enable_caching", "num_gpu_blocks", "get_num_free_blocks()"),
        "Request": (
            "request_id",
            "status",
            "lora_request",
            "is_prefill_chunk",
            "is_finished()",
            "num_computed_tokens",
            "num_tokens",
            "num_prompt_tokens",
            "num_output_tokens",
            "num_stale_output_tokens",
            "drop_stale_output",
        ),
        "RequestStatus": (
            "WAITING",
            "RUNNING",
            "PREEMPTED",
            "WAITING_FOR_REMOTE_KVS",
            "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
            "WAITING_FOR_STREAMING_REQ",
        ),
    },
    "request_events": {
        "Request": (
            "sampling_params",
            "max_tokens",
            "priority",
            "arrival_time",
            "cache_salt",
            "skip_reading_prefix_cache",
            "resumable",
            "num_preemptions",
        ),
    },
    "dense_rows": {
        "Scheduler": (
            "block_size",
            "current_step",
            "encoder_cache_mismatch_reqs",
            "need_mamba_block_aligned_split",
            "num_prefill_lookahead",
        ),
        "Request": (
            "max_tokens",
            "mm_features",
            "next_decode_eligible_step",
            "num_output_placeholders",
            "num_tokens_with_spec",
        ),
    },
    "kv_blocks": {
        "Scheduler": ("deferred_frees",),
        "BlockPool": ("free_block_queue", "evict_blocks()", "reset_prefix_cache()"),
        "FreeKVCacheBlockQueue": (
            "popleft()",
            "popleft_n(n)",
            "remove(block)",
            "append(block)",
            "append_n(blocks)",
            "prepend_n(blocks)",
            "get_all_free_blocks()",
        ),
        "KVCacheBlock": ("block_hash", "is_null"),
    },
    "waiting_reasons": {
        "Scheduler": (
            "encoder_cache_mismatch_reqs",
            "get_request_counts()",
            "max_num_active_reqs",
            "max_num_running_reqs",
            "need_mamba_block_aligned_split",
            "num_prefill_lookahead",
            "num_spec_tokens",
        ),
        "Request": ("mm_features",),
    },
    "preemptions": {
        "Scheduler": ("deferred_frees",),
        "Request": (
            "priority",
            "num_in_flight_tokens",
            "num_output_placeholders",
            "num_preemptions",
        ),
    },
    "allocation_failures": {
        "Scheduler": ("num_lookahead_tokens",),
        "KVCacheCoordinator": (
            "get_num_blocks_to_allocate(request_id, num_tokens, new_computed_blocks, "
            "num_encoder_tokens, total_computed_tokens, num_local_computed_tokens, "
            "num_tokens_main_model, apply_admission_cap, prefill_end)",
        ),
    },
    "connector_stages": {
        "Scheduler": ("connector", "finished_recving_kv_req_ids"),
        "KVConnectorOutput": ("finished_recving", "finished_sending"),
        "KVCacheManager": ("get_block_ids(request_id)",),
    },
    "encoder": {
        "Scheduler": ("encoder_cache_manager", "ec_connector", "max_num_encoder_input_tokens"),
        "SchedulerOutput": ("scheduled_encoder_inputs", "free_encoder_mm_hashes"),
        "Request": ("mm_features", "get_num_encoder_embeds(input_id)"),
    },
    "grammar": {
        "Request": ("structured_output_request",),
        "StructuredOutputRequest": ("grammar", "structured_output_key"),
    },
    "drafts": {
        "DraftTokenIds": ("req_ids",),
        "Request": ("spec_token_ids",),
    },
    "pauses": {},
    "prefix_hashes": {"Scheduler": ("hash_block_size",), "Request": ("block_hashes",)},
    "content_hashes": {
        "Scheduler": ("hash_block_size",),
        "Request": ("block_hashes", "mm_features", "prompt_embeds", "prompt_token_ids"),
    },
    "trace_context": {"Request": ("trace_headers",)},
}
"""What each feature stands on: `name`, or `name(parameter, ...)` for a method that is called."""
