"""What a mirror attends to is what lies in the blocks, and it is given up when it must be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from engine.runner.attention_metadata import AttentionMetadata
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_mirror import ROOM_TOKENS, DecodeMirrors, MirroredStep
from engine.runner.kv_tensors import PagedKVCache
from engine.runner.layer_call import LayerCall, StepAttention
from engine.runner.layer_groups import LayerGroup

BLOCK_SIZE, NUM_KV_HEADS, NUM_HEADS, KEY_DIM, VALUE_DIM = 8, 2, 6, 16, 24
MAX_BLOCKS = 16


class Decodes:
    """Sequences that decode, in a cache whose free places hold garbage; one layer."""

    def __init__(self, seq_lens: Sequence[int], *, sliding_window: int | None = None) -> None:
        self.generator = torch.Generator().manual_seed(0)
        size = (len(seq_lens) * MAX_BLOCKS + 1, BLOCK_SIZE, NUM_KV_HEADS, KEY_DIM + VALUE_DIM)
        content = 100 * torch.randn(size, generator=self.generator)
        self.cache = PagedKVCache([content], (LayerGroup((0,), sliding_window),), KEY_DIM)
        blocks = np.random.default_rng(0).permutation(np.arange(1, size[0]))
        self.tables = blocks.reshape(len(seq_lens), MAX_BLOCKS).astype(np.int32)
        self.names = tuple(f"r{i}" for i in range(len(seq_lens)))
        self.seq_lens = np.array(seq_lens)
        self.mirrors = DecodeMirrors(self.cache)
        for i, length in enumerate(seq_lens):
            for position in range(length):
                self._write(np.array([i]), np.array([position]))

    def _write(self, sequences: np.ndarray, positions: np.ndarray) -> None:
        key = torch.randn(len(sequences), NUM_KV_HEADS, KEY_DIM, generator=self.generator)
        value = torch.randn(len(sequences), NUM_KV_HEADS, VALUE_DIM, generator=self.generator)
        slots = torch.from_numpy(self._slots(sequences, positions))
        self.cache.write(0, slots, key, value)

    def _slots(self, sequences: np.ndarray, positions: np.ndarray) -> np.ndarray:
        blocks = self.tables[sequences, positions // BLOCK_SIZE].astype(np.int64)
        slots: np.ndarray = blocks * BLOCK_SIZE + positions % BLOCK_SIZE
        return slots

    def inputs(self) -> BatchInputs:
        size = len(self.seq_lens)
        positions = self.seq_lens - 1
        num_blocks = -(-int(self.seq_lens.max()) // BLOCK_SIZE)
        return BatchInputs(
            request_ids=self.names,
            rows=np.arange(size),
            token_ids=np.zeros(size, np.int64),
            positions=positions,
            slot_mapping=self._slots(np.arange(size), positions)[None],
            query_start=np.arange(size + 1),
            seq_lens=self.seq_lens.copy(),
            block_tables=self.tables[None, :, :num_blocks],
            sampling_seqs=np.arange(size),
            num_drafts=np.zeros(size, np.int64),
        )

    def gathered(self, inputs: BatchInputs) -> StepAttention:
        return AttentionMetadata.build(inputs, self.cache, torch.device("cpu"))

    def step(self, *, by: int = 1, call: LayerCall | None = None) -> bool:
        """Runs one more step of all sequences and checks it; returns whether it was mirrored."""
        self.seq_lens = self.seq_lens + by
        inputs = self.inputs()
        self._write(np.arange(len(self.seq_lens)), self.seq_lens - 1)
        query = torch.randn(len(self.seq_lens), NUM_HEADS, KEY_DIM, generator=self.generator)
        attention = self.mirrors.step(inputs, lambda: self.gathered(inputs))
        call = call or LayerCall(0)
        wanted = self.gathered(inputs).attend(call, query)
        torch.testing.assert_close(attention.attend(call, query), wanted, rtol=1e-4, atol=1e-5)
        return isinstance(attention, MirroredStep)


def test_the_second_step_of_a_batch_and_all_after_it_are_mirrored() -> None:
    decodes = Decodes([9, 17, 30, 5])
    assert [decodes.step() for _ in range(5)] == [False, True, True, True, True]


def test_a_mirror_grows_with_its_sequences() -> None:
    decodes = Decodes([ROOM_TOKENS - 3, 40, 50, 60])
    assert sum(decodes.step() for _ in range(8)) == 7


def test_another_batch_is_gathered_before_it_is_mirrored() -> None:
    decodes = Decodes([9, 17, 30, 5, 12])
    decodes.step(), decodes.step()
    decodes.names, decodes.seq_lens = decodes.names[:4], decodes.seq_lens[:4]
    decodes.tables = decodes.tables[:4]
    assert [decodes.step(), decodes.step()] == [False, True]


def test_a_sequence_that_is_computed_again_is_not_taken_from_the_mirror() -> None:
    decodes = Decodes([9, 17, 30, 5])
    decodes.step(), decodes.step()
    assert not decodes.step(by=0)


@pytest.mark.parametrize("seq_lens", [[9, 17, 30], [120, 5, 5, 5, 5, 5, 5, 5]])
def test_what_would_not_pay_is_gathered(
    seq_lens: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.runner.decode_mirror.ROOM_TOKENS", 8)
    decodes = Decodes(seq_lens)
    assert not any(decodes.step() for _ in range(3))


def test_a_window_shorter_than_a_sequence_is_attended_to_from_the_blocks() -> None:
    decodes = Decodes([20, 30, 11, 40], sliding_window=44)
    assert all(decodes.step() or n == 0 for n in range(8))


def test_a_layer_with_more_than_plain_attention_is_attended_to_from_the_blocks() -> None:
    decodes = Decodes([9, 17, 30, 5])
    decodes.step(), decodes.step()
    assert decodes.step(call=LayerCall(0, softcap=5.0))
    assert decodes.step()
