"""What an engine was told, under vLLM's names: flags first, then a configuration.

It crosses to the engine process, where model and device decide what it leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.config import CacheConfig, EngineConfig, KVGroupConfig, Policy, SchedulerConfig

MIN_GPU_BLOCKS = 2
"""The null block and one to use."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The engine's flags under vLLM's names. None: decided by the model or the device.

    `model` is a local checkpoint; None is the tiny Llama. `scripted_step_seconds` replaces the
    model by a runner that says fixed tokens and takes that long for a step. After each finished
    step its number is written to `step_pipe`, a named pipe.
    """

    model: Path | None = None
    served_model_name: str | None = None
    dtype: Dtype = "auto"
    seed: int = 0
    max_model_len: int | None = None
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: float = 0.92
    max_num_seqs: int = 256
    max_num_active_seqs: int | None = None
    max_num_batched_tokens: int = 2048
    max_num_scheduled_tokens: int | None = None
    long_prefill_token_threshold: int = 0
    scheduling_policy: Policy = "fcfs"
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    allow_oversize: bool = False
    scripted_step_seconds: float | None = None
    step_pipe: Path | None = None

    def __post_init__(self) -> None:
        """Checks what needs neither model nor device.

        Raises:
            ConfigError: a setting cannot be used, whatever the model.
        """
        self.config(
            num_gpu_blocks=MIN_GPU_BLOCKS
            if self.num_gpu_blocks_override is None
            else self.num_gpu_blocks_override,
            max_position=1,
        )

    @property
    def model_name(self) -> str:
        """The model's name in the API."""
        if self.served_model_name is not None:
            return self.served_model_name
        return "tiny-llama" if self.model is None else str(self.model)

    def config(
        self,
        *,
        num_gpu_blocks: int,
        max_position: int,
        kv_groups: tuple[KVGroupConfig, ...] = (),
    ) -> EngineConfig:
        """Returns the engine's configuration, once model and device have decided the rest.

        Args:
            kv_groups: layers by what they keep; empty where all keep everything.

        Raises:
            ConfigError: a setting cannot be used.
        """
        return EngineConfig(
            scheduler=SchedulerConfig(
                policy=self.scheduling_policy,
                max_num_seqs=self.max_num_seqs,
                max_num_active_seqs=self.max_num_active_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
                max_num_scheduled_tokens=self.max_num_scheduled_tokens,
                max_model_len=max_position if self.max_model_len is None else self.max_model_len,
                enable_chunked_prefill=self.enable_chunked_prefill,
                long_prefill_token_threshold=self.long_prefill_token_threshold,
                scheduler_reserve_full_isl=self.scheduler_reserve_full_isl,
                watermark=self.watermark,
            ),
            cache=CacheConfig(
                block_size=self.block_size,
                groups=() if [group.kind for group in kv_groups] == ["full"] else kv_groups,
                num_gpu_blocks=num_gpu_blocks,
                enable_prefix_caching=self.enable_prefix_caching,
                gpu_memory_utilization=self.gpu_memory_utilization,
            ),
            allow_oversize=self.allow_oversize,
        )
