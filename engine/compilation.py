"""How the model's kernels are chosen and launched: settings under vLLM's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.config_error import ConfigError

AttentionBackendName = Literal["FLASHINFER", "FLASH_ATTN", "FLEX_ATTENTION", "TORCH_SDPA"]
"""Attention kernels, in the order in which they are tried on CUDA."""

ATTENTION_BACKENDS: tuple[AttentionBackendName, ...] = (
    "FLASHINFER",
    "FLASH_ATTN",
    "FLEX_ATTENTION",
    "TORCH_SDPA",
)

MAX_CAPTURE_SIZE = 512
"""Largest CUDA graph where it is not set, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilationConfig:
    """CUDA graphs of decode batches, and the attention kernel; None is chosen when the model loads.

    Sizes are in tokens. With `enforce_eager` every kernel is launched one by one.
    """

    enforce_eager: bool = False
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    attention_backend: AttentionBackendName | None = None

    def __post_init__(self) -> None:
        sizes = self.cudagraph_capture_sizes
        if sizes is not None and (not sizes or min(sizes) < 1):
            raise ConfigError(
                f"cudagraph_capture_sizes is {list(sizes)}: name sizes of 1 token or more, or "
                "use --enforce-eager for none"
            )
        largest = self.max_cudagraph_capture_size
        if largest is not None and largest < 1:
            raise ConfigError(
                f"max_cudagraph_capture_size is {largest}: it must be 1 or more; "
                "--enforce-eager turns CUDA graphs off"
            )
        if sizes is not None and largest is not None and max(sizes) > largest:
            raise ConfigError(
                f"cudagraph_capture_sizes goes up to {max(sizes)} but max_cudagraph_capture_size "
                f"is {largest}: raise the one or shorten the other"
            )
        if self.attention_backend not in (None, *ATTENTION_BACKENDS):
            raise ConfigError(
                f"attention_backend is {self.attention_backend!r}: choose one of "
                f"{', '.join(ATTENTION_BACKENDS)}"
            )

    def capture_sizes(
        self, *, max_num_seqs: int, query_len: int, max_num_batched_tokens: int
    ) -> tuple[int, ...]:
        """Returns the sizes to capture, smallest first; those set, or vLLM's.

        Args:
            max_num_seqs: sequences of the largest decode batch.
            query_len: tokens of each of them: 1, and with k drafts k + 1.
            max_num_batched_tokens: no step has more.

        Source: vLLM, vllm/config/vllm.py, `_set_cudagraph_sizes`.
        """
        largest = min(
            self.max_cudagraph_capture_size or MAX_CAPTURE_SIZE,
            max_num_seqs * query_len,
            max_num_batched_tokens,
        )
        sizes: Sequence[int] | None = self.cudagraph_capture_sizes
        if sizes is None:
            usual = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
            sizes = (*(size for size in usual if size < largest), largest)
        return tuple(sorted({size for size in sizes if size <= max_num_batched_tokens}))
