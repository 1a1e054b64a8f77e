from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from engine.runner.attention import AttentionMetadata, paged_attention
from engine.runner.grouping import batch_order
from engine.runner.input_batch import BatchInputs
from engine.runner.kv_tensors import PagedKVCache

BLOCK_SIZE = 8
HEAD_DIM = 16


class Layer(torch.nn.Module):
    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx


class Case:
    """Sequences with random keys and values, in a cache whose free places hold garbage."""

    def __init__(
        self, sequences: Sequence[tuple[int, int]], *, num_heads: int, num_kv_heads: int, seed: int
    ) -> None:
        """Takes (tokens computed before, tokens in this step) of each sequence."""
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
            torch.randn(int(n), num_kv_heads, HEAD_DIM, generator=generator) for n in self.seq_lens
        ]
        self.query = torch.randn(
            int(self.query_lens.sum()), num_heads, HEAD_DIM, generator=generator
        )
        size = (int(num_blocks.sum()) + 1, BLOCK_SIZE, 2 * num_kv_heads, HEAD_DIM)
        self.cache = PagedKVCache(
            [1000.0 * torch.randn(size, generator=generator) for _ in range(2)]
        )
        for i in range(len(sequences)):
            before = int(self.seq_lens[i] - self.query_lens[i])
            slots = torch.from_numpy(self.slots(i, 0, before))
            self.cache.write(1, slots, self.keys[i][:before], self.values[i][:before])

    def slots(self, sequence: int, start: int, end: int) -> np.ndarray:
        positions = np.arange(start, end)
        blocks = self.tables[sequence][positions // BLOCK_SIZE].astype(np.int64)
        places: np.ndarray = blocks * BLOCK_SIZE + positions % BLOCK_SIZE
        return places

    def new_tokens(self, per_sequence: list[torch.Tensor]) -> torch.Tensor:
        parts = [t[-int(n) :] for t, n in zip(per_sequence, self.query_lens, strict=True)]
        return torch.cat(parts).transpose(0, 1)[None]

    def run(self, *, sliding_window: int | None = None) -> torch.Tensor:
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
            ),
            query_start=self.query_start,
            seq_lens=self.seq_lens,
            block_tables=self.tables,
            sampling_seqs=np.arange(len(self.seq_lens)),
        )
        output, _ = paged_attention(
            Layer(1),
            self.query.transpose(0, 1)[None],
            self.new_tokens(self.keys),
            self.new_tokens(self.values),
            None,
            attention_metadata=AttentionMetadata.build(inputs, self.cache, torch.device("cpu")),
            scaling=0.3,
            sliding_window=sliding_window,
        )
        return output[0]

    def expected(self, *, sliding_window: int | None = None) -> torch.Tensor:
        """Returns what plain attention over contiguous keys and values gives, a sequence a time."""
        outputs = []
        for i, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            query = self.query[self.query_start[i] : self.query_start[i + 1]]
            last, first = int(self.seq_lens[i]), int(self.seq_lens[i] - self.query_lens[i])
            places, own = torch.arange(last)[None], torch.arange(first, last)[:, None]
            seen = places <= own
            if sliding_window is not None:
                seen &= places > own - sliding_window
            group = query.shape[1] // key.shape[1]
            outputs.append(
                F.scaled_dot_product_attention(
                    query.transpose(0, 1),
                    key.transpose(0, 1).repeat_interleave(group, 0),
                    value.transpose(0, 1).repeat_interleave(group, 0),
                    attn_mask=seen,
                    scale=0.3,
                ).transpose(0, 1)
            )
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


@pytest.mark.parametrize("num_heads", [4, 12])
@pytest.mark.parametrize("shape", SHAPES)
def test_paged_attention_equals_plain_attention(shape: str, num_heads: int) -> None:
    case = Case(SHAPES[shape], num_heads=num_heads, num_kv_heads=4, seed=len(shape))
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sliding_window_hides_older_keys(shape: str) -> None:
    case = Case(SHAPES[shape], num_heads=6, num_kv_heads=2, seed=3)
    expected = case.expected(sliding_window=12)
    torch.testing.assert_close(case.run(sliding_window=12), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_random_batches_attend_as_they_would_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sequences = [
        (int(rng.integers(0, 150)), 1 if rng.random() < 0.5 else int(rng.integers(1, 60)))
        for _ in range(int(rng.integers(1, 40)))
    ]
    case = Case(sequences, num_heads=8, num_kv_heads=2, seed=seed)
    torch.testing.assert_close(case.run(), case.expected(), atol=2e-5, rtol=1e-4)


def test_other_layers_are_not_written() -> None:
    case = Case([(4, 3)], num_heads=2, num_kv_heads=2, seed=1)
    before = case.cache.layers[0].clone()
    case.run()
    assert torch.equal(case.cache.layers[0], before)


@pytest.mark.parametrize("wish", ["softcap", "s_aux"])
def test_what_it_does_not_do_is_refused(wish: str) -> None:
    case = Case([(4, 3)], num_heads=2, num_kv_heads=2, seed=1)
    query, key, value = case.query.transpose(0, 1)[None], case.keys[0], case.values[0]
    metadata = AttentionMetadata(cache=case.cache, slot_mapping=torch.zeros(3), groups=[])
    with pytest.raises(NotImplementedError, match="soft-capping"):
        paged_attention(
            Layer(1),
            query,
            key,
            value,
            None,
            attention_metadata=metadata,
            **{wish: torch.ones(1)},  # type: ignore[arg-type]
        )
