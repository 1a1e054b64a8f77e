"""How much of the machine's memory an engine may take, and the error of one that wants more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.settings import EngineSettings

if TYPE_CHECKING:
    from engine.runner.device_profile import DeviceProfile


class EngineMemoryError(ValueError):
    """The settings ask for more memory than there is; the message says which of them."""


def kv_budget(settings: EngineSettings, profile: DeviceProfile | None) -> int:
    """Returns the memory for the KV cache: what was set, what was measured, or 1 GiB on CPU."""
    from engine.runner.kv_tensors import CPU_KV_BYTES

    if settings.kv_cache_memory_bytes is not None:
        return settings.kv_cache_memory_bytes
    if profile is None:
        return CPU_KV_BYTES
    return profile.memory.kv_budget(settings.gpu_memory_utilization)


def check_pool(kv_bytes: int, memory_bytes: int, num_gpu_blocks: int) -> None:
    """Refuses a KV pool larger than the memory that it would lie in.

    Raises:
        EngineMemoryError: it is.
    """
    if kv_bytes > memory_bytes:
        raise EngineMemoryError(
            f"{num_gpu_blocks:,} KV blocks need {kv_bytes:,} bytes, but there are "
            f"{memory_bytes:,}: lower --num-gpu-blocks-override or --block-size"
        )


@contextmanager
def told_as_memory_error(config: EngineConfig) -> Iterator[None]:
    """Says of a largest step that does not fit what to change.

    Raises:
        EngineMemoryError: it does not.
    """
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        scheduler = config.scheduler
        raise EngineMemoryError(
            f"a step of {scheduler.max_num_batched_tokens:,} tokens and {scheduler.max_num_seqs:,} "
            "requests does not fit beside the weights: lower --max-num-batched-tokens or "
            f"--max-num-seqs, or use a smaller model ({error})"
        ) from error


def host_bytes() -> int:
    """Returns the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
