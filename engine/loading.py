"""Builds what an engine needs from its settings: runner, configuration, and what they found.

torch is imported here and only when a model is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.identity import DeviceMemory
from engine.runner import Runner
from engine.runner.scripted import ScriptedRunner
from engine.settings import EngineSettings
from telemetry.vocabulary import Phase

if TYPE_CHECKING:
    from engine.runner.model import LoadedModel

SCRIPTED_VOCAB_SIZE = 256
SCRIPTED_MAX_POSITION = 4096
SCRIPTED_NUM_BLOCKS = 8192


class EngineMemoryError(ValueError):
    """The settings ask for more memory than there is; the message says which of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """A runner that is ready, with the configuration that it was built for."""

    config: EngineConfig
    runner: Runner
    model_directory: Path | None
    vocab_size: int
    eos_token_ids: Sequence[int]
    device: str
    dtype: str
    memory: DeviceMemory


def load_engine(settings: EngineSettings, *, phase_hook: Callable[[Phase], None]) -> LoadedEngine:
    """Returns the engine's parts.

    Raises:
        ValueError: the checkpoint or a setting cannot be used; the message is for people.
    """
    if settings.scripted_step_seconds is not None:
        return _load_scripted(settings, settings.scripted_step_seconds)
    return _load_model(settings, phase_hook)


def _load_scripted(settings: EngineSettings, step_seconds: float) -> LoadedEngine:
    config = settings.config(
        num_gpu_blocks=settings.num_gpu_blocks_override or SCRIPTED_NUM_BLOCKS,
        max_position=SCRIPTED_MAX_POSITION,
    )
    runner = ScriptedRunner(
        lambda request_id, index: index % SCRIPTED_VOCAB_SIZE,
        step_seconds=lambda output: step_seconds if output.num_scheduled_tokens else 0.0,
    )
    return LoadedEngine(
        config=config,
        runner=runner,
        model_directory=None,
        vocab_size=SCRIPTED_VOCAB_SIZE,
        eos_token_ids=(),
        device="scripted",
        dtype="none",
        memory=DeviceMemory(),
    )


def _load_model(settings: EngineSettings, phase_hook: Callable[[Phase], None]) -> LoadedEngine:
    import torch

    from engine.runner.checkpoints import find_checkpoint
    from engine.runner.kv_tensors import choose_num_blocks
    from engine.runner.model import DTYPES, load_model

    _leave_a_core_free()
    directory = find_checkpoint(settings.model, dtype=DTYPES.get(settings.dtype))
    model = load_model(directory, dtype=settings.dtype)
    num_gpu_blocks = choose_num_blocks(
        model.kv_shape,
        block_size=settings.block_size,
        device=model.device,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        override=settings.num_gpu_blocks_override,
    )
    config = settings.config(
        num_gpu_blocks=num_gpu_blocks,
        max_position=model.max_position,
        kv_groups=model.kv_groups(settings.block_size),
    )
    block_bytes = model.kv_shape.block_bytes(settings.block_size)
    total_bytes = None
    if model.device.type == "cuda":
        total_bytes = torch.cuda.mem_get_info(model.device)[1]
    _check_pool(num_gpu_blocks * block_bytes, total_bytes or _host_bytes(), num_gpu_blocks)
    runner = _make_runner(model, config, phase_hook, settings.seed)
    return LoadedEngine(
        config=config,
        runner=runner,
        model_directory=directory,
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
        device=model.device.type,
        dtype=str(model.dtype).removeprefix("torch."),
        memory=DeviceMemory(
            total_bytes=total_bytes,
            weights_bytes=model.weights_bytes,
            kv_bytes=num_gpu_blocks * block_bytes,
            kv_block_bytes=block_bytes,
        ),
    )


def _make_runner(
    model: LoadedModel, config: EngineConfig, phase_hook: Callable[[Phase], None], seed: int
) -> Runner:
    """Returns the model's runner, with its buffers and KV pool in place.

    Raises:
        EngineMemoryError: there is no memory for them.
    """
    import torch

    from engine.runner.model_runner import ModelRunner

    try:
        return ModelRunner(model, config, phase_hook=phase_hook, seed=seed)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise EngineMemoryError(
            f"there is no memory for {config.scheduler.max_num_seqs:,} requests of "
            f"{config.scheduler.max_model_len:,} tokens and {config.cache.num_gpu_blocks:,} KV "
            "blocks: lower --max-num-seqs, --max-model-len or --num-gpu-blocks-override "
            f"({error})"
        ) from error


def _check_pool(kv_bytes: int, memory_bytes: int, num_gpu_blocks: int) -> None:
    """Refuses a KV pool larger than the memory that it would lie in.

    Raises:
        EngineMemoryError: it is.
    """
    if kv_bytes > memory_bytes:
        raise EngineMemoryError(
            f"{num_gpu_blocks:,} KV blocks need {kv_bytes:,} bytes, but there are "
            f"{memory_bytes:,}: lower --num-gpu-blocks-override or --block-size"
        )


def _host_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _leave_a_core_free() -> None:
    """Keeps torch's threads off one core, which the API process needs.

    Its threads wait for each other at the end of every operation: one that shares its core with
    another busy process makes all of them late, by far more than the core is worth.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
