"""vLLM's own scheduler as a course drives it; imported only where vLLM is installed.

No model is loaded: the scheduler is built from its configuration, as vLLM builds it, and is not
changed in any way. Its own statistics are off, which is the cheaper of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from benchmarks.scheduling.workloads import BLOCK_SIZE, MAX_MODEL_LEN, NewRequest, Workload


class TheirSide:
    """vLLM's scheduler with the settings of a workload."""

    def __init__(self, workload: Workload, model: Path) -> None:
        self._scheduler = _scheduler(workload, model)
        self._hasher = (
            get_request_block_hasher(BLOCK_SIZE, sha256) if workload.prefix_caching else None
        )
        self.schedule: Callable[[], Any] = self._scheduler.schedule
        self.update: Callable[[Any, Any], Sized] = self._scheduler.update_from_output

    @property
    def num_requests(self) -> int:
        return len(self._scheduler.requests)

    def add(self, new: NewRequest) -> None:
        grammar = StructuredOutputsParams(regex="a+") if new.waits_for_grammar else None
        request = Request(
            request_id=new.request_id,
            prompt_token_ids=new.prompt,
            sampling_params=SamplingParams(
                max_tokens=new.max_tokens,
                temperature=0.0,
                ignore_eos=True,
                structured_outputs=grammar,
            ),
            pooling_params=None,
            arrival_time=float(new.index),
            priority=new.priority,
            block_hasher=self._hasher,
        )
        self._scheduler.add_request(request)

    def answer(self, output: Any, token_id: int) -> ModelRunnerOutput:
        requests = self._scheduler.requests
        names = list(output.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[
                [] if requests[name].is_prefill_chunk else [token_id] for name in names
            ],
        )

    def num_scheduled_tokens(self, output: Any) -> int:
        return output.total_num_scheduled_tokens

    def num_preempted(self, output: Any) -> int:
        return len(output.preempted_req_ids or ())

    def decisions(self, output: Any, results: Any) -> object:
        given = [(new.req_id, _tables(new.block_ids)) for new in output.scheduled_new_reqs]
        cached = output.scheduled_cached_reqs
        given += [
            (name, _tables(blocks))
            for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True)
            if blocks is not None
        ]
        tokens = [
            (one.request_id, list(one.new_token_ids), _reason(one))
            for batch in results.values()
            for one in batch.outputs
        ]
        return (
            list(output.num_scheduled_tokens.items()),
            given,
            sorted(output.preempted_req_ids or ()),
            sorted(output.finished_req_ids),
            tokens,
        )


def _tables(block_ids: Any) -> list[list[int]]:
    return [list(blocks) for blocks in block_ids]


def _reason(result: Any) -> str | None:
    return None if result.finish_reason is None else result.finish_reason.name.lower()


def _scheduler(workload: Workload, model: Path) -> Scheduler:
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(model),
            dtype="float32",
            skip_tokenizer_init=True,
            max_model_len=MAX_MODEL_LEN,
        ),
        scheduler_config=SchedulerConfig(
            policy=workload.policy,
            max_num_seqs=workload.max_num_seqs,
            max_num_batched_tokens=workload.max_num_batched_tokens,
            max_model_len=MAX_MODEL_LEN,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            scheduler_reserve_full_isl=workload.reserves_full_prompt,
            watermark=0.0,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(
            block_size=BLOCK_SIZE, enable_prefix_caching=workload.prefix_caching
        ),
    )
    config.cache_config.num_gpu_blocks = workload.num_gpu_blocks
    _require_unchanged(config, workload)
    layer = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=workload.num_gpu_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], layer)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def _require_unchanged(config: VllmConfig, workload: Workload) -> None:
    """Raises ValueError where vLLM has corrected a setting behind our back."""
    settings = {
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "prefix_caching": config.cache_config.enable_prefix_caching,
    }
    for name, value in settings.items():
        wanted = getattr(workload, name)
        if value != wanted:
            raise ValueError(f"{name} is {value} in vLLM, but the workload has {wanted}")
