"""The engine's settings, under vLLM's names and with its defaults.

Every class checks itself when it is made and says what is wrong, the value, the limit and the
remedy. Nothing here is read from the environment.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from math import gcd, lcm
from typing import Literal

from engine.compilation import CompilationConfig
from engine.config_error import ConfigError as ConfigError

Policy = Literal["fcfs", "priority"]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@dataclass(frozen=True, slots=True)
class KVGroupConfig:
    """Layers that share block tables: full attention, or a sliding window of so many tokens."""

    kind: Literal["full", "sliding_window"]
    block_size: int
    sliding_window: int | None = None

    def __post_init__(self) -> None:
        _require(self.block_size >= 1, f"block_size is {self.block_size}: it must be 1 or more")
        _require(
            self.kind == "full" or (self.sliding_window or 0) >= 1,
            f"sliding_window is {self.sliding_window}: a window group needs 1 token or more",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The KV cache.

    `num_gpu_blocks` counts the null block, as vLLM's `--num-gpu-blocks-override` does: 160 means
    159 usable blocks. `kv_cache_memory_bytes` is what was set for the pool; None was measured.
    `groups` is empty for a model with full attention alone; with groups of several block sizes,
    `block_size` is their least common multiple.

    `chunk_alignment` is for hybrid models, whose state-space layers can be taken up again only
    where a block ends: a chunk of a prompt ends on a multiple of so many tokens, or its request
    gets nothing in that step. The last chunk ends where the prompt does. None is off.
    """

    block_size: int = 16
    groups: tuple[KVGroupConfig, ...] = ()
    num_gpu_blocks: int = 1024
    enable_prefix_caching: bool = True
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    chunk_alignment: int | None = None

    def __post_init__(self) -> None:
        _require(self.block_size >= 1, f"block_size is {self.block_size}: it must be 1 or more")
        _require(
            self.num_gpu_blocks >= 2,
            f"num_gpu_blocks is {self.num_gpu_blocks}: one is the null block, so 2 is the least; "
            "raise --num-gpu-blocks-override",
        )
        _require(
            0.0 < self.gpu_memory_utilization <= 1.0,
            f"gpu_memory_utilization is {self.gpu_memory_utilization}: "
            "it is a share of the device, above 0 and at most 1",
        )
        _require(
            self.kv_cache_memory_bytes is None or self.kv_cache_memory_bytes >= 1,
            f"kv_cache_memory_bytes is {self.kv_cache_memory_bytes}: it must be 1 or more",
        )
        multiple = lcm(*(group.block_size for group in self.kv_groups))
        _require(
            self.block_size == multiple,
            f"block_size is {self.block_size}: with these KV groups it has to be {multiple}, "
            "the least common multiple of theirs",
        )
        aligned = self.chunk_alignment is None or self.chunk_alignment % self.block_size == 0
        _require(
            aligned and self.chunk_alignment != 0,
            f"chunk_alignment is {self.chunk_alignment}: chunks end where blocks do, so it must be "
            f"a multiple of block_size ({self.block_size}), or None (off)",
        )

    @property
    def kv_groups(self) -> tuple[KVGroupConfig, ...]:
        """The groups, or the one of a model with full attention alone."""
        return self.groups or (KVGroupConfig("full", self.block_size),)

    @property
    def hash_block_size(self) -> int:
        """Tokens of a prefix hash: the greatest size that divides all groups' blocks."""
        return gcd(*(group.block_size for group in self.kv_groups))

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that can be handed out."""
        return self.num_gpu_blocks - 1

    @property
    def num_kv_tokens(self) -> int:
        """Tokens that the pool holds: one takes up a place in each group."""
        num_blocks = sum(self.block_size // group.block_size for group in self.kv_groups)
        return self.num_usable_blocks // num_blocks * self.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """What a step may hold, and who is let in.

    `max_num_scheduled_tokens` and `max_num_active_seqs` default to `max_num_batched_tokens` and
    `max_num_seqs`. `long_prefill_token_threshold` caps what one request gets in a step while there
    are others (0 is off; adaptive: at least an even share of the step). `max_loras` caps the
    adapters of a step. With `async_scheduling` a step is decided while the one before still runs.
    `pp_size` is the number of stages that the model is cut into (vLLM's
    `--pipeline-parallel-size`): as many steps are in flight, and a request decodes in at most one
    step of `pp_size`.
    `scheduler_reserve_full_isl` admits a request only when all its known tokens fit into the free
    blocks; `watermark` is the share of the pool that admissions leave free.
    """

    policy: Policy = "fcfs"
    max_num_seqs: int = 256
    max_num_active_seqs: int | None = None
    max_num_batched_tokens: int = 2048
    max_num_scheduled_tokens: int | None = None
    max_model_len: int = 4096
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    max_loras: int | None = None
    async_scheduling: bool = False
    pp_size: int = 1
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0

    def __post_init__(self) -> None:
        _require(
            self.policy in ("fcfs", "priority"),
            f"scheduling policy is {self.policy!r}: choose fcfs or priority",
        )
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "pp_size"):
            value = getattr(self, name)
            _require(value >= 1, f"{name} is {value}: it must be 1 or more")
        _require(
            1 <= self.scheduled_tokens <= self.max_num_batched_tokens,
            f"max_num_scheduled_tokens is {self.scheduled_tokens}: it must lie between 1 and "
            f"max_num_batched_tokens ({self.max_num_batched_tokens})",
        )
        _require(
            1 <= self.active_seqs <= self.max_num_seqs,
            f"max_num_active_seqs is {self.active_seqs}: it must lie between 1 and "
            f"max_num_seqs ({self.max_num_seqs})",
        )
        _require(
            self.enable_chunked_prefill or self.max_num_batched_tokens >= self.max_model_len,
            f"max_num_batched_tokens is {self.max_num_batched_tokens} and max_model_len "
            f"{self.max_model_len}: without chunked prefill a prompt of that length never fits; "
            "raise the one, lower the other, or enable chunked prefill",
        )
        _require(
            self.long_prefill_token_threshold >= 0,
            f"long_prefill_token_threshold is {self.long_prefill_token_threshold}: "
            "it must be 0 (off) or more",
        )
        _require(
            self.max_loras is None or self.max_loras >= 1,
            f"max_loras is {self.max_loras}: it must be 1 or more",
        )
        _require(
            0.0 <= self.watermark < 1.0,
            f"watermark is {self.watermark}: it is a share of the pool, from 0 to below 1",
        )

    @property
    def scheduled_tokens(self) -> int:
        """The token budget of a step."""
        if self.max_num_scheduled_tokens is None:
            return self.max_num_batched_tokens
        return self.max_num_scheduled_tokens

    @property
    def max_concurrent_batches(self) -> int:
        """Steps that may be in flight at once: one a stage, or two with asynchronous scheduling."""
        return max(self.pp_size, 2 if self.async_scheduling else 1)

    @property
    def active_seqs(self) -> int:
        """Running requests up to which more are admitted."""
        return self.max_num_seqs if self.max_num_active_seqs is None else self.max_num_active_seqs


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    """Speculative decoding, as the scheduler sees it; 0 drafts is none. `method` says who drafts.

    `num_lookahead_tokens` are slots that a drafter with KV of its own needs beyond the scheduled
    tokens, `prefill_lookahead` positions that it looks at beyond a chunk. `drop_last_hit_block`
    computes the last block of a prefix hit again, for a drafter that needs its hidden states.
    `draft_slots_per_request` are places in the model's input (`max_num_batched_tokens`) that a
    drafter takes for every scheduled request, beside its tokens.
    """

    method: str | None = None
    num_speculative_tokens: int = 0
    num_lookahead_tokens: int = 0
    prefill_lookahead: int = 0
    drop_last_hit_block: bool = False
    draft_slots_per_request: int = 0

    def __post_init__(self) -> None:
        for name in (
            *("num_speculative_tokens", "num_lookahead_tokens", "prefill_lookahead"),
            "draft_slots_per_request",
        ):
            value = getattr(self, name)
            _require(value >= 0, f"{name} is {value}: it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoRAConfig:
    """LoRA adapters: slots on the device, the largest rank, how many stay in host memory.

    `max_loras` is the scheduler's cap too. `max_cpu_loras` is `max_loras` where it is not set.
    """

    max_loras: int = 1
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_loras", "max_lora_rank"):
            value = getattr(self, name)
            _require(value >= 1, f"{name} is {value}: it must be 1 or more")
        _require(
            self.cpu_loras >= self.max_loras,
            f"max_cpu_loras is {self.max_cpu_loras} and max_loras {self.max_loras}: what a step "
            "needs comes from host memory; raise the one or lower the other",
        )

    @property
    def cpu_loras(self) -> int:
        """Adapters that stay in host memory, besides those in use."""
        return self.max_loras if self.max_cpu_loras is None else self.max_cpu_loras


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Encoder inputs of multimodal prompts, in embeddings.

    `compute_budget` is what one step may encode, `cache_size` what the encoder cache holds. With
    `disable_chunked_mm_input` a chunk of a prompt never ends in the middle of an item.
    """

    compute_budget: int
    cache_size: int
    disable_chunked_mm_input: bool = False

    def __post_init__(self) -> None:
        for name in ("compute_budget", "cache_size"):
            value = getattr(self, name)
            _require(value >= 1, f"encoder {name} is {value}: it must be 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class KVConnectorConfig:
    """A KV connector: which way KV goes, and what happens when it does not come.

    An asynchronous load that takes longer than `load_timeout_seconds` counts as failed: its request
    starts over without it, or ends (`load_failure_policy`). `ack_timeout_seconds` after a request
    whose KV is being sent has ended, the record says that the other side is late. Neither gives
    blocks back, for the transfer may still touch them: that takes its end (a report of the runner)
    or `lease_seconds` since the request let go of them. Set the lease only where a transfer of that
    age is certain to be dead. None is never.

    `connector` is its name, for the record.
    """

    connector: str | None = None
    role: Literal["kv_producer", "kv_consumer", "kv_both"] = "kv_both"
    load_failure_policy: Literal["recompute", "fail"] = "recompute"
    load_timeout_seconds: float | None = None
    ack_timeout_seconds: float | None = None
    lease_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("load_timeout_seconds", "ack_timeout_seconds", "lease_seconds"):
            value = getattr(self, name)
            _require(
                value is None or value > 0,
                f"{name} is {value}: it must be above 0, or None (never)",
            )
        _require(
            self.lease_seconds is None or self.lease_seconds >= (self.ack_timeout_seconds or 0),
            f"lease_seconds is {self.lease_seconds} and ack_timeout_seconds "
            f"{self.ack_timeout_seconds}: blocks cannot be given up before their time-out; "
            "raise the one or lower the other",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """All settings of an engine.

    `encoder` is None for a model without encoder inputs, `lora` where no adapter can be served.
    """

    kv_connector: KVConnectorConfig | None = None
    lora: LoRAConfig | None = None
    encoder: EncoderConfig | None = None
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    compilation: CompilationConfig = field(default_factory=CompilationConfig)
    allow_oversize: bool = False

    def __post_init__(self) -> None:
        alignment = self.cache.chunk_alignment or 0
        limits = {
            "max_num_scheduled_tokens": self.scheduler.scheduled_tokens,
            "long_prefill_token_threshold": self.scheduler.long_prefill_token_threshold,
        }
        for name, value in limits.items():
            _require(
                value == 0 or value >= alignment,
                f"chunk_alignment is {alignment} and {name} {value}: no chunk of a long prompt "
                "would ever fit; raise the one or lower the other",
            )
        slots = self.speculation.draft_slots_per_request
        _require(
            slots < self.scheduler.max_num_batched_tokens,
            f"draft_slots_per_request is {slots} and max_num_batched_tokens "
            f"{self.scheduler.max_num_batched_tokens}: no token would ever fit beside them; "
            "raise the one or lower the other",
        )

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admissions leave free while something runs."""
        return int(self.scheduler.watermark * self.cache.num_gpu_blocks)

    def to_json(self) -> str:
        """Returns all settings as a JSON object."""
        return json.dumps(asdict(self), sort_keys=True)
