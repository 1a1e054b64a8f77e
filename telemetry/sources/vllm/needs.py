"""The names of vLLM's own code that each feature of the record stands on.

They are private to vLLM and may change in any version: `compatibility` looks for each of them. A
name that a hook uses and that is not here is a fault of ours.

Source: vLLM 0.32, vllm/v1/core/sched/scheduler.py and the classes that it works with.
"""

from __future__ import annotations

from collections.abc import Mapping

CLASSES: Mapping[str, str] = {
    "KVCacheManager": "vllm.v1.core.kv_cache_manager",
    "BlockPool": "vllm.v1.core.block_pool",
    "EncoderCacheManager": "vllm.v1.core.encoder_cache_manager",
    "KVConnectorBase_V1": "vllm.distributed.kv_transfer.kv_connector.v1.base",
    "SchedulerOutput": "vllm.v1.core.sched.output",
    "ModelRunnerOutput": "vllm.v1.outputs",
    "KVConnectorOutput": "vllm.v1.outputs",
    "Request": "vllm.v1.request",
    "RequestStatus": "vllm.v1.request",
}
"""Where vLLM keeps the classes that are looked through, besides the scheduler's own."""

NEEDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "step_rows": {
        "Scheduler": (
            "schedule()",
            "_update_after_schedule(scheduler_output)",
            "update_from_output(scheduler_output, model_runner_output)",
            "shutdown()",
            "vllm_config",
            "kv_cache_config",
            "requests",
            "running",
            "waiting",
        ),
        "SchedulerOutput": ("num_scheduled_tokens", "total_num_scheduled_tokens"),
        "Request": ("request_id", "num_computed_tokens", "num_tokens", "num_prompt_tokens"),
    },
    "request_events": {
        "Scheduler": (
            "add_request(request)",
            "finish_requests(request_ids, finished_status)",
            "_free_request(request)",
            "_handle_stopped_request(request)",
            "_update_request_as_session(session, update)",
        ),
        "Request": ("status", "max_tokens", "priority", "arrival_time", "num_output_tokens"),
        "RequestStatus": ("RUNNING", "PREEMPTED", "FINISHED_STOPPED", "FINISHED_ABORTED"),
    },
    "dense_rows": {"Request": ("num_tokens_with_spec", "spec_token_ids")},
    "kv_blocks": {
        "Scheduler": ("kv_cache_manager",),
        "KVCacheManager": ("block_pool", "get_blocks(request_id)"),
        "BlockPool": ("num_gpu_blocks", "null_block", "free_block_queue", "get_num_free_blocks()"),
    },
    "waiting_reasons": {
        "Scheduler": (
            "deferred_waiting",
            "kv_holding_waiting",
            "_handle_blocked_waiting_request(request)",
            "_ec_transfer_pending(request)",
        ),
        "RequestStatus": (
            "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
            "WAITING_FOR_REMOTE_KVS",
            "WAITING_FOR_STREAMING_REQ",
        ),
    },
    "preemptions": {
        "Scheduler": ("_preempt_request(request, timestamp)",),
        "Request": ("num_preemptions", "num_in_flight_tokens"),
    },
    "allocation_failures": {
        "Scheduler": ("kv_cache_manager",),
        "KVCacheManager": ("allocate_slots(request, num_new_tokens)",),
    },
    "connector_stages": {
        "Scheduler": (
            "connector",
            "finished_recving_kv_req_ids",
            "failed_recving_kv_req_ids",
            "_update_from_kv_xfer_finished(kv_connector_output)",
            "_handle_failed_recving(failed_req_ids)",
            "_update_requests_with_invalid_blocks(requests, invalid_block_ids)",
        ),
        "KVConnectorBase_V1": ("get_num_new_matched_tokens(request, num_computed_tokens)",),
        "ModelRunnerOutput": ("kv_connector_output",),
        "KVConnectorOutput": ("finished_recving", "finished_sending", "invalid_block_ids"),
    },
    "encoder": {
        "Scheduler": ("encoder_cache_manager", "ec_connector"),
        "EncoderCacheManager": ("can_allocate(request)",),
        "SchedulerOutput": ("scheduled_encoder_inputs",),
        "Request": ("mm_features",),
    },
    "grammar": {"Request": ("structured_output_request",)},
    "drafts": {
        "Scheduler": ("update_draft_token_ids(draft_token_ids)",),
        "SchedulerOutput": ("scheduled_spec_decode_tokens",),
    },
    "pauses": {
        "Scheduler": (
            "set_pause_state(pause_state)",
            "reset_prefix_cache(reset_running_requests)",
            "reset_encoder_cache()",
        ),
    },
    "prefix_hashes": {"Scheduler": ("hash_block_size",), "Request": ("block_hashes",)},
    "trace_context": {"Request": ("trace_headers",)},
}
"""The names that each feature stands on: `name`, or `name(parameter, ...)` for a method."""
