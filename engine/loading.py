"""Builds what an engine needs from its settings: runner, configuration, and what they found.

torch is imported here and only when a model is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.connectors.building import build_connector, check_kv_groups
from engine.connectors.no_blocks import NoBlocks
from engine.connectors.worker import KVTransferWorker
from engine.identity import DeviceMemory
from engine.lora.store import AdapterStore
from engine.memory_limits import (
    EngineMemoryError,
    check_pool,
    host_bytes,
    kv_budget,
    told_as_memory_error,
)
from engine.runner import Runner
from engine.runner.scripted import ScriptedRunner
from engine.settings import MIN_GPU_BLOCKS, EngineSettings
from engine.structured_output.compiler import GrammarCompiler
from engine.structured_output.structured_outputs import StructuredOutputs
from telemetry.vocabulary import Phase

if TYPE_CHECKING:
    from engine.runner.attention_backend import MakeBackend
    from engine.runner.drafters import DrafterParts
    from engine.runner.model import LoadedModel
    from engine.runner.model_runner import ModelRunner

SCRIPTED_VOCAB_SIZE = 256
SCRIPTED_MAX_POSITION = 4096
SCRIPTED_NUM_BLOCKS = 8192


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
    adapters: AdapterStore | None = None
    """None where no adapter can be served."""
    transfers: KVTransferWorker | None = None
    """None without a KV connector."""
    device_notes: Mapping[str, str] = field(default_factory=dict)
    """What a person should know about the device, by what it is about."""

    def structured_outputs(self) -> StructuredOutputs:
        """Returns what compiles grammars for the model, and says so where it cannot."""
        return StructuredOutputs(
            GrammarCompiler(
                self.model_directory, vocab_size=self.vocab_size, eos_token_ids=self.eos_token_ids
            )
        )


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
    if (transfer := settings.kv_transfer_config) is not None:
        runner.transfers = build_connector(
            transfer,
            settings.inject,
            config,
            NoBlocks(),
            lambda: {"block_size": config.cache.block_size},
        )
    return LoadedEngine(
        config=config,
        runner=runner,
        transfers=runner.transfers,
        model_directory=None,
        vocab_size=SCRIPTED_VOCAB_SIZE,
        eos_token_ids=(),
        device="scripted",
        dtype="none",
        memory=DeviceMemory(),
    )


def _load_model(settings: EngineSettings, phase_hook: Callable[[Phase], None]) -> LoadedEngine:
    from engine.runner.checkpoints import find_checkpoint
    from engine.runner.device_notes import device_notes
    from engine.runner.device_profile import profile_cuda, record_cuda_graphs
    from engine.runner.kernels.choice import ModelNeeds, choose_backend
    from engine.runner.kv_tensors import choose_num_blocks
    from engine.runner.model import DTYPES, load_model

    _leave_a_core_free()
    directory = find_checkpoint(settings.model, dtype=DTYPES.get(settings.dtype))
    model = load_model(directory, dtype=settings.dtype, lora=settings.lora_config)
    adapters = _load_adapters(model, settings)
    drafter_parts = _load_drafter_parts(model, settings)
    kv_groups = model.kv_groups(settings.block_size)
    attention = choose_backend(
        ModelNeeds(
            layers=model.layers,
            shape=model.kv_shape,
            block_size=settings.block_size,
            device=model.device,
        ),
        settings.attention_backend,
    )

    def make_runner(
        config: EngineConfig, phase_hook: Callable[[Phase], None] | None = None
    ) -> ModelRunner:
        return _make_runner(
            model, config, phase_hook, settings.seed, adapters, drafter_parts, attention.make
        )

    measured = settings.config(
        num_gpu_blocks=MIN_GPU_BLOCKS, max_position=model.max_position, kv_groups=kv_groups
    )
    profile = None
    if model.device.type == "cuda":
        with told_as_memory_error(measured):
            profile = profile_cuda(model.device, measured, make_runner)
    num_gpu_blocks = choose_num_blocks(
        model.kv_shape,
        block_size=settings.block_size,
        budget_bytes=kv_budget(settings, profile),
        override=settings.num_gpu_blocks_override,
        draft_block_bytes=0 if drafter_parts is None else drafter_parts.block_bytes,
    )
    config = settings.config(
        num_gpu_blocks=num_gpu_blocks, max_position=model.max_position, kv_groups=kv_groups
    )
    chosen = replace(config.compilation, attention_backend=attention.name)
    config = replace(config, compilation=chosen)
    check_kv_groups(config)
    block_bytes = model.kv_shape.block_bytes(settings.block_size)
    weights_bytes = model.weights_bytes
    if drafter_parts is not None:
        block_bytes += drafter_parts.block_bytes
        weights_bytes += drafter_parts.weights_bytes
    total_bytes = None if profile is None else profile.memory.total_bytes
    check_pool(num_gpu_blocks * block_bytes, total_bytes or host_bytes(), num_gpu_blocks)
    runner = make_runner(config, phase_hook)
    graph_bytes = None if profile is None else record_cuda_graphs(runner, config, profile)
    notes = {}
    if profile is not None:
        notes = device_notes(
            attention,
            profile,
            runner.forward_pass.graphs,
            gpu_memory_utilization=settings.gpu_memory_utilization,
        )
    return LoadedEngine(
        config=config,
        runner=runner,
        model_directory=directory,
        vocab_size=model.vocab_size,
        eos_token_ids=model.eos_token_ids,
        device=model.device.type,
        dtype=str(model.dtype).removeprefix("torch."),
        adapters=adapters,
        transfers=_connect(settings, config, model, runner),
        device_notes=notes,
        memory=DeviceMemory(
            total_bytes=total_bytes,
            weights_bytes=weights_bytes if profile is None else profile.memory.weights_bytes,
            activation_bytes=None if profile is None else profile.memory.activation_bytes,
            graph_bytes=graph_bytes,
            kv_bytes=num_gpu_blocks * block_bytes,
            kv_block_bytes=block_bytes,
        ),
    )


def _load_adapters(model: LoadedModel, settings: EngineSettings) -> AdapterStore | None:
    """Returns the adapters that were asked for; None where none can be served.

    Raises:
        AdapterError: one of them cannot.
    """
    from engine.lora.reading import read_adapter

    if model.lora is None or settings.lora_config is None:
        return None
    adaptable = model.lora.adaptable
    store = AdapterStore(
        lambda directory: read_adapter(directory, adaptable),
        max_cpu_loras=settings.lora_config.cpu_loras,
    )
    for module in settings.lora_modules:
        store.load(module)
    return store


def _load_drafter_parts(model: LoadedModel, settings: EngineSettings) -> DrafterParts | None:
    """Returns what a drafter is made of; None without speculative decoding.

    Raises:
        ModelError: the draft model cannot be used.
    """
    from engine.runner.drafters import load_drafter_parts

    if settings.speculative_config is None:
        return None
    return load_drafter_parts(
        settings.speculative_config, model, dtype=settings.dtype, block_size=settings.block_size
    )


def _make_runner(
    model: LoadedModel,
    config: EngineConfig,
    phase_hook: Callable[[Phase], None] | None,
    seed: int,
    adapters: AdapterStore | None,
    drafter_parts: DrafterParts | None,
    attention: MakeBackend,
) -> ModelRunner:
    """Returns the model's runner, with its buffers and KV pool in place.

    Raises:
        EngineMemoryError: there is no memory for them.
    """
    import torch

    from engine.runner.model_runner import ModelRunner

    try:
        return ModelRunner(
            model,
            config,
            phase_hook=phase_hook,
            seed=seed,
            adapters=adapters,
            drafter=None if drafter_parts is None else drafter_parts.build(config),
            attention=attention,
        )
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise EngineMemoryError(
            f"there is no memory for {config.scheduler.max_num_seqs:,} requests of "
            f"{config.scheduler.max_model_len:,} tokens and {config.cache.num_gpu_blocks:,} KV "
            "blocks: lower --max-num-seqs, --max-model-len or --num-gpu-blocks-override "
            f"({error})"
        ) from error


def _connect(
    settings: EngineSettings, config: EngineConfig, model: LoadedModel, runner: ModelRunner
) -> KVTransferWorker | None:
    """Gives a runner its KV connector; returns it, or None where there is to be none.

    Raises:
        ConfigError: it cannot be had.
    """
    from engine.runner.kv_manifest import kv_manifest
    from engine.runner.paged_blocks import PagedBlocks

    transfer = settings.kv_transfer_config
    if transfer is None:
        return None
    runner.transfers = build_connector(
        transfer,
        settings.inject,
        config,
        PagedBlocks(runner.kv_cache),
        lambda: kv_manifest(model, config.cache.block_size),
    )
    return runner.transfers


def _leave_a_core_free() -> None:
    """Keeps torch's threads off one core, which the API process needs.

    Its threads wait for each other at the end of every operation: one that shares its core with
    another busy process makes all of them late, by far more than the core is worth.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
