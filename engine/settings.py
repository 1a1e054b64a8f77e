"""What an engine was told, under vLLM's names: flags first, then a configuration.

It crosses to the engine process, where model and device decide what it leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.compilation import AttentionBackendName, CompilationConfig
from engine.config import (
    CacheConfig,
    ConfigError,
    EngineConfig,
    KVGroupConfig,
    LoRAConfig,
    Policy,
    SchedulerConfig,
    SpeculationConfig,
)
from engine.connectors.faults import Fault
from engine.connectors.settings import KVTransferConfig
from engine.lora.module_spec import AdapterModule
from engine.speculative_settings import SpeculativeSettings

MIN_GPU_BLOCKS = 2
"""The null block and one to use."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The engine's flags under vLLM's names. None: decided by the model or the device.

    `model` is a local checkpoint; None is the tiny Llama. `scripted_step_seconds` replaces the
    model by a runner that says fixed tokens and takes that long for a step. After each finished
    step its number is written to `step_pipe`, a named pipe.

    `max_num_queued_reqs` is the server's: it counts what is under way and refuses what is more.
    So is `max_logprobs`: the most log probabilities that it tells of a token. `inject` are faults
    of the KV connector, for drills.
    """

    model: Path | None = None
    served_model_name: str | None = None
    dtype: Dtype = "auto"
    seed: int = 0
    max_model_len: int | None = None
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    attention_backend: AttentionBackendName | None = None
    enforce_eager: bool = False
    cudagraph_capture_sizes: Sequence[int] | None = None
    max_cudagraph_capture_size: int | None = None
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
    speculative_config: SpeculativeSettings | None = None
    max_num_queued_reqs: int | None = None
    max_logprobs: int = 20
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None
    lora_modules: Sequence[AdapterModule] = ()
    kv_transfer_config: KVTransferConfig | None = None
    inject: Sequence[Fault] = ()
    scripted_step_seconds: float | None = None
    step_pipe: Path | None = None

    def __post_init__(self) -> None:
        """Checks what needs neither model nor device.

        Raises:
            ConfigError: a setting cannot be used, whatever the model.
        """
        if self.scripted_step_seconds is not None and self.speculative_config is not None:
            raise ConfigError(
                "--scripted-step-seconds and --speculative-config are both set: a scripted runner "
                "verifies no drafts; leave out one of them"
            )
        if self.max_num_queued_reqs is not None and self.max_num_queued_reqs < 1:
            raise ConfigError(
                f"max_num_queued_reqs is {self.max_num_queued_reqs}: it must be 1 or more"
            )
        self._check_adapters()
        if self.inject and self.kv_transfer_config is None:
            raise ConfigError(
                "inject names faults of a KV connector, but there is none: add --kv-transfer-config"
            )
        if self.max_logprobs < 0:
            raise ConfigError(f"max_logprobs is {self.max_logprobs}: it must be 0 or more")
        self.config(
            num_gpu_blocks=MIN_GPU_BLOCKS
            if self.num_gpu_blocks_override is None
            else self.num_gpu_blocks_override,
            max_position=1,
        )

    def _check_adapters(self) -> None:
        if self.lora_modules and not self.enable_lora:
            raise ConfigError("lora_modules are given without enable_lora: add --enable-lora")
        names = [self.model_name, *(module.name for module in self.lora_modules)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"{twice!r} is the name of two models: give each of --lora-modules, and "
                "--served-model-name, another"
            )

    def _compilation(self) -> CompilationConfig:
        sizes = self.cudagraph_capture_sizes
        return CompilationConfig(
            enforce_eager=self.enforce_eager,
            cudagraph_capture_sizes=None if sizes is None else tuple(sizes),
            max_cudagraph_capture_size=self.max_cudagraph_capture_size,
            attention_backend=self.attention_backend,
        )

    @property
    def lora_config(self) -> LoRAConfig | None:
        """The adapters' settings; None without adapters."""
        if not self.enable_lora:
            return None
        return LoRAConfig(
            max_loras=self.max_loras,
            max_lora_rank=self.max_lora_rank,
            max_cpu_loras=self.max_cpu_loras,
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
        speculation = (
            SpeculationConfig()
            if self.speculative_config is None
            else self.speculative_config.config()
        )
        transfer = self.kv_transfer_config
        return EngineConfig(
            kv_connector=None if transfer is None else transfer.config(),
            speculation=speculation,
            scheduler=SchedulerConfig(
                policy=self.scheduling_policy,
                max_num_seqs=self.max_num_seqs,
                max_num_active_seqs=self.max_num_active_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
                max_num_scheduled_tokens=self._scheduled_tokens(speculation),
                max_model_len=max_position if self.max_model_len is None else self.max_model_len,
                enable_chunked_prefill=self.enable_chunked_prefill,
                long_prefill_token_threshold=self.long_prefill_token_threshold,
                scheduler_reserve_full_isl=self.scheduler_reserve_full_isl,
                watermark=self.watermark,
                max_loras=self.max_loras if self.enable_lora else None,
            ),
            lora=self.lora_config,
            cache=CacheConfig(
                block_size=self.block_size,
                groups=() if [group.kind for group in kv_groups] == ["full"] else kv_groups,
                num_gpu_blocks=num_gpu_blocks,
                enable_prefix_caching=self.enable_prefix_caching,
                gpu_memory_utilization=self.gpu_memory_utilization,
                kv_cache_memory_bytes=self.kv_cache_memory_bytes,
            ),
            compilation=self._compilation(),
            allow_oversize=self.allow_oversize,
        )

    def _scheduled_tokens(self, speculation: SpeculationConfig) -> int | None:
        """Returns the token budget: what is set, or what is left beside one request's draft slots.

        Each further request's slots are taken off as it is scheduled (`scheduler.input_budget`).
        """
        slots = speculation.draft_slots_per_request
        if self.max_num_scheduled_tokens is not None or not slots:
            return self.max_num_scheduled_tokens
        if slots >= self.max_num_batched_tokens:
            raise ConfigError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}: with "
                f"{slots} for the drafts of a request nothing is left; raise it"
            )
        return self.max_num_batched_tokens - slots
