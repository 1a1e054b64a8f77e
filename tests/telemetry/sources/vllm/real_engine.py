"""Runs inside a real vLLM: makes a scheduler as an engine core does, prints what we say of it.

Not a test: `test_description` and `test_registration` start it with vLLM's own Python.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import stepscope_vllm

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def real_config(folder: Path) -> Any:
    """Returns a VllmConfig with something private in each place that takes it."""
    from vllm.config import CacheConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig

    (folder / "config.json").write_text(json.dumps(MODEL))
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), served_model_name="tiny", skip_tokenizer_init=True, dtype="float32"
        ),
        scheduler_config=SchedulerConfig(
            max_model_len=1024,
            is_encoder_decoder=False,
            max_num_seqs=8,
            max_num_batched_tokens=256,
            watermark=0.25,
        ),
        cache_config=CacheConfig(block_size=32, gpu_memory_utilization=0.5),
        kv_transfer_config=KVTransferConfig(
            kv_connector="ExampleConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"password": "hunter2", "shared_storage_path": str(folder)},
        ),
    )
    config.cache_config.num_gpu_blocks = 65
    return config


def real_scheduler(config: Any, scheduler: type) -> Any:
    """Returns a scheduler with 65 blocks of 32 tokens, of which one is the null block."""
    import torch
    from vllm.v1.core.kv_cache_utils import KVCacheTensor
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    spec = FullAttentionSpec(block_size=32, num_kv_heads=1, head_size=32, dtype=torch.float32)
    layers = ["layer.0", "layer.1"]
    page = spec.page_size_bytes
    tensor = KVCacheTensor(
        size=2 * 65 * page, layers=layers, layer_stride=65 * page, block_stride=page
    )
    return scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=65,
            kv_cache_tensors=[tensor],
            kv_cache_groups=[KVCacheGroupSpec(layers, spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=32,
        hash_block_size=32,
        log_stats=True,
    )


def own_scheduler() -> type:
    """Returns a scheduler class as a user of vLLM might bring one."""
    from vllm.v1.core.sched.scheduler import Scheduler

    return type("TheirScheduler", (Scheduler,), {})


def attached(config: Any) -> dict[str, Any]:
    """Returns what vLLM gets for a scheduler class once we are in, and what its ring says."""
    from vllm.config import SchedulerConfig

    from telemetry.ring import RingReader

    stepscope_vllm.register()
    chosen = {
        "default": {"async_scheduling": False},
        "asynchronous": {"async_scheduling": True},
        "own": {"scheduler_cls": own_scheduler()},
    }
    classes = {
        name: SchedulerConfig.default_factory(**how).get_scheduler_cls()
        for name, how in chosen.items()
    }
    scheduler = real_scheduler(config, config.scheduler_config.get_scheduler_cls())
    (path,) = Path(os.environ["STEPSCOPE_RING_DIR"]).glob("*.ring")
    reader = RingReader(path)
    found = {
        "bases": {name: [base.__name__ for base in cls.__mro__] for name, cls in classes.items()},
        "is_held": reader.is_held,
        "description": reader.description()[1],
    }
    reader.close()
    scheduler.shutdown()
    return found


def main(folder: Path) -> dict[str, Any]:
    """Returns what the plug-in finds in this vLLM, and what vLLM gets of it."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    from telemetry.sources.vllm.description import engine_row
    from telemetry.sources.vllm.subclassing import look_at

    config = real_config(folder)
    row = engine_row(real_scheduler(config, Scheduler), look_at(Scheduler), started_ts=7)
    return {
        "row": asdict(row),
        "lacking": {
            cls.__name__: dict(look_at(cls).lacking) for cls in (Scheduler, AsyncScheduler)
        },
        "attached": attached(config),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
