"""Random sequences in a paged cache, and what plain attention over them gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from engine.runner.attention import paged_attention
from engine.runner.attention_backend import AttentionBackend, GatherBackend
from engine.runner.batch_inputs import BatchInputs
from engine.runner.grouping import batch_order
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_groups import LayerGroup

BLOCK_SIZE = 8
HEAD_DIM = 16


class Layer(torch.nn.Module):
    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx


class Case:
    """Sequences with random keys and values, in a cache whose free places hold garbage."""

    def __init__(
        self,
        sequences: Sequence[tuple[int, int]],
        *,
        num_heads: int,
        num_kv_heads: int,
        seed: int,
        sliding_window: int | None = None,
        value_dim: int = HEAD_DIM,
        backend: Callable[[PagedKVCache], AttentionBackend] = GatherBackend,
        given_back: float = float("nan"),
    ) -> None:
        """Takes (tokens computed before, tokens in this step) of each sequence.

        `given_back` is what blocks that a window has passed hold by now: a NaN shows wherever they
        are looked at.
        """
        self.given_back = given_back
        self.sliding_window = sliding_window
        generator = torch.Generator().manual_seed(seed)
        rng = np.random.default_rng(seed)
        seq_lens = np.array([before + now for before, now in sequences])
        query_lens = np.array([now for _, now in sequences])
        order = batch_order(query_lens, seq_lens)
        self.seq_lens, self.query_lens = seq_lens[order], query_lens[order]
        self.query_start = np.concatenate(([0], np.cumsum(self.query_lens)))
        num_blocks = -(-self.seq_lens // BLOCK_SIZE)
        ids = rng.permutation(np.arange(1, num_blocks.sum() + 1))
        self.tables = np.zeros((len(sequences), num_blocks.max()), np.int32)
        for table, count, end in zip(self.tables, num_blocks, num_blocks.cumsum(), strict=True):
            table[:count] = ids[end - count : end]
        self.keys = [
            torch.randn(int(n), num_kv_heads, HEAD_DIM, generator=generator) for n in self.seq_lens
        ]
        self.values = [
            torch.randn(int(n), num_kv_heads, value_dim, generator=generator) for n in self.seq_lens
        ]
        self.query = torch.randn(
            int(self.query_lens.sum()), num_heads, HEAD_DIM, generator=generator
        )
        size = (int(num_blocks.sum()) + 1, BLOCK_SIZE, num_kv_heads, HEAD_DIM + value_dim)
        self.cache = PagedKVCache(
            [1000.0 * torch.randn(size, generator=generator) for _ in range(2)],
            (LayerGroup((0, 1), sliding_window),),
            HEAD_DIM,
        )
        self.backend = backend(self.cache)
        for i in range(len(sequences)):
            before = int(self.seq_lens[i] - self.query_lens[i])
            slots = torch.from_numpy(self.slots(i, 0, before))
            self.cache.write(1, slots, self.keys[i][:before], self.values[i][:before])
            self._give_back_what_the_window_has_passed(i, before)

    def _give_back_what_the_window_has_passed(self, sequence: int, computed: int) -> None:
        if self.sliding_window is not None:
            num_expired = max(0, computed - self.sliding_window + 1) // BLOCK_SIZE
            for block in self.tables[sequence][:num_expired]:
                self.cache.layers[1][block] = self.given_back

    def slots(self, sequence: int, start: int, end: int) -> np.ndarray:
        positions = np.arange(start, end)
        blocks = self.tables[sequence][positions // BLOCK_SIZE].astype(np.int64)
        places: np.ndarray = blocks * BLOCK_SIZE + positions % BLOCK_SIZE
        return places

    def new_tokens(self, per_sequence: list[torch.Tensor]) -> torch.Tensor:
        parts = [t[-int(n) :] for t, n in zip(per_sequence, self.query_lens, strict=True)]
        return torch.cat(parts).transpose(0, 1)[None]

    def run(self, **wishes: object) -> torch.Tensor:
        starts = self.seq_lens - self.query_lens
        inputs = BatchInputs(
            request_ids=tuple(map(str, range(len(self.seq_lens)))),
            rows=np.arange(len(self.seq_lens)),
            token_ids=np.zeros(len(self.query), np.int64),
            positions=np.concatenate(
                [np.arange(s, e) for s, e in zip(starts, self.seq_lens, strict=True)]
            ),
            slot_mapping=np.concatenate(
                [self.slots(i, int(starts[i]), int(self.seq_lens[i])) for i in range(len(starts))]
            )[None],
            query_start=self.query_start,
            seq_lens=self.seq_lens,
            block_tables=self.tables[None],
            sampling_seqs=np.arange(len(self.seq_lens)),
            num_drafts=np.zeros(len(self.seq_lens), np.int64),
        )
        output, _ = paged_attention(
            Layer(1),
            self.query.transpose(0, 1)[None],
            self.new_tokens(self.keys),
            self.new_tokens(self.values),
            None,
            attention_metadata=self.backend.step(inputs),
            scaling=0.3,
            **wishes,  # type: ignore[arg-type]
        )
        return output[0]

    def expected(
        self, *, softcap: float | None = None, s_aux: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns what plain attention over contiguous keys and values gives, a sequence a time."""
        outputs = []
        for i, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            query = self.query[self.query_start[i] : self.query_start[i + 1]]
            last, first = int(self.seq_lens[i]), int(self.seq_lens[i] - self.query_lens[i])
            places, own = torch.arange(last)[None], torch.arange(first, last)[:, None]
            seen = places <= own
            if self.sliding_window is not None:
                seen &= places > own - self.sliding_window
            group = query.shape[1] // key.shape[1]
            scores = 0.3 * torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(group, 1))
            if softcap is not None:
                scores = torch.tanh(scores / softcap) * softcap
            weights = scores.masked_fill(~seen, float("-inf")).exp()
            total = weights.sum(2, keepdim=True)
            if s_aux is not None:
                total += s_aux.exp()[:, None, None]
            value = value.repeat_interleave(group, 1)
            outputs.append(torch.einsum("hqk,khd->qhd", weights / total, value))
        return torch.cat(outputs)


SHAPES: dict[str, list[tuple[int, int]]] = {
    "one decode": [(37, 1)],
    "decodes of one length": [(20, 1)] * 5,
    "decodes of all lengths": [(n, 1) for n in (0, 1, 7, 8, 9, 63, 64, 200, 500, 1000)],
    "one whole prompt": [(0, 50)],
    "a chunk behind a prefix": [(43, 21)],
    "a prompt of several tiles": [(5, 700)],
    "short prompts": [(0, 3), (0, 5), (8, 6), (0, 9), (16, 2), (0, 30)],
    "all at once": [(90, 1), (0, 600), (3, 1), (40, 17), (0, 17), (700, 2), (8, 1), (0, 2)],
}
