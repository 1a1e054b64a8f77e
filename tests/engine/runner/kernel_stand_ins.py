"""Stand-ins for kernels that need a CUDA device: what their documentation says, score by score.

With them, what the engine plans and hands over is checked on a CPU. They say nothing about the
kernels themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    window_left: int,
    softcap: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns one sequence's output, and the log sums `[queries, heads]`.

    The last query is the last key's: causality, and windows, count from the end.
    """
    num_queries, num_heads, _ = query.shape
    folds = num_heads // key.shape[1]
    key, value = key.repeat_interleave(folds, 1), value.repeat_interleave(folds, 1)
    scores = torch.einsum("qhd,khd->qhk", query, key) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    own = torch.arange(num_queries)[:, None] + len(key) - num_queries
    places = torch.arange(len(key))[None]
    seen = places <= own
    if window_left >= 0:
        seen &= places >= own - window_left
    scores = scores.masked_fill(~seen[:, None], float("-inf"))
    return torch.einsum("qhk,khd->qhd", scores.softmax(-1), value), scores.logsumexp(-1)


def pages(cache: torch.Tensor, blocks: Sequence[int], num_tokens: int) -> torch.Tensor:
    """Returns the tokens of some pages, side by side."""
    return cache[list(blocks)].flatten(0, 1)[:num_tokens]


class BatchPrefillWithPagedKVCacheWrapper:
    """FlashInfer's, as its documentation has it: planned once, run a layer at a time."""

    def __init__(
        self,
        workspace: torch.Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        assert (workspace.dtype, kv_layout) == (torch.uint8, "NHD")
        self._buffers = None
        if use_cuda_graph:
            self._buffers = (
                qo_indptr_buf,
                paged_kv_indptr_buf,
                paged_kv_indices_buf,
                paged_kv_last_page_len_buf,
            )
        self._page_size = 0

    def plan(self, *tables: torch.Tensor, page_size: int, causal: bool, **how: Any) -> None:
        assert causal
        assert all(table.dtype is torch.int32 for table in tables)
        self._page_size, self._how = page_size, how
        if self._buffers is None:
            self._tables = tables
            return
        for buffer, table, at in zip(self._buffers, tables, "==<=", strict=True):
            assert buffer is not None
            assert len(table) == len(buffer) if at == "=" else len(table) <= len(buffer)
            buffer[: len(table)].copy_(table)
        self._tables = self._buffers  # type: ignore[assignment]

    def run(
        self,
        query: torch.Tensor,
        paged: tuple[torch.Tensor, torch.Tensor],
        *,
        return_lse: bool = False,
    ) -> Any:
        key, value = paged
        assert key.stride() == value.stride()
        query_starts, starts, blocks, last_lens = (table.tolist() for table in self._tables)
        outputs, sums = [], []
        for i, last_len in enumerate(last_lens):
            own = blocks[starts[i] : starts[i + 1]]
            num_tokens = (len(own) - 1) * self._page_size + last_len
            output, log_sums = attend(
                query[query_starts[i] : query_starts[i + 1]],
                pages(key, own, num_tokens),
                pages(value, own, num_tokens),
                scale=self._how["sm_scale"] or query.shape[2] ** -0.5,
                window_left=self._how["window_left"],
                softcap=self._how["logits_soft_cap"] or 0.0,
            )
            outputs.append(output)
            sums.append(log_sums / math.log(2))
        return (torch.cat(outputs), torch.cat(sums)) if return_lse else torch.cat(outputs)


flashinfer = SimpleNamespace(
    BatchPrefillWithPagedKVCacheWrapper=BatchPrefillWithPagedKVCacheWrapper
)
"""Stands in for the package."""


def varlen_attn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
) -> Any:
    """torch's, over pages."""
    assert enable_gqa
    assert window_size[1] == 0
    assert {cu_seq_q.dtype, seqused_k.dtype, block_table.dtype} == {torch.int32}
    starts, lengths = cu_seq_q.tolist(), seqused_k.tolist()
    if cu_seq_k is not None:
        assert cu_seq_k.diff().tolist() == lengths
    assert max_k >= max(lengths)
    outputs, sums = [], []
    for i, length in enumerate(lengths):
        own = block_table[i].tolist()
        assert starts[i + 1] - starts[i] <= max_q
        output, log_sums = attend(
            query[starts[i] : starts[i + 1]],
            pages(key, own, length),
            pages(value, own, length),
            scale=scale or query.shape[2] ** -0.5,
            window_left=window_size[0],
            softcap=0.0,
        )
        outputs.append(output)
        sums.append(log_sums)
    if return_aux is None:
        return torch.cat(outputs)
    return torch.cat(outputs), torch.cat(sums).T.contiguous()
