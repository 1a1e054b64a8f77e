from __future__ import annotations

import numpy as np
import pytest

from engine.compilation import CompilationConfig
from engine.config import ConfigError
from engine.runner.batch_inputs import BatchInputs
from engine.runner.decode_shapes import DecodeShape, DecodeShapes, pad_decodes, shapes_of

BLOCK_SIZE = 4


def step(query_lens: list[int], seq_lens: list[int]) -> BatchInputs:
    """Returns a step of one KV group, in which sequence i has blocks 10 i + 1, 10 i + 2, ..."""
    num_blocks = [-(-n // BLOCK_SIZE) for n in seq_lens]
    tables = np.zeros((1, len(seq_lens), max(num_blocks)), np.int32)
    for i, count in enumerate(num_blocks):
        tables[0, i, :count] = 10 * i + 1 + np.arange(count)
    starts = [last - now for last, now in zip(seq_lens, query_lens, strict=True)]
    places = [np.arange(s, e) for s, e in zip(starts, seq_lens, strict=True)]
    slots = [
        tables[0, i, at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE for i, at in enumerate(places)
    ]
    return BatchInputs(
        request_ids=tuple(f"r{i}" for i in range(len(seq_lens))),
        rows=np.arange(len(seq_lens)),
        token_ids=np.arange(100, 100 + sum(query_lens)),
        positions=np.concatenate(places),
        slot_mapping=np.concatenate(slots).astype(np.int64)[None],
        query_start=np.concatenate(([0], np.cumsum(query_lens))),
        seq_lens=np.array(seq_lens),
        block_tables=tables,
        sampling_seqs=np.arange(len(seq_lens)),
        num_drafts=np.zeros(len(seq_lens), np.int64),
    )


def sizes(**settings: object) -> tuple[int, ...]:
    limits = {"max_num_seqs": 256, "query_len": 1, "max_num_batched_tokens": 2048}
    config = CompilationConfig(
        **{name: value for name, value in settings.items() if name not in limits}  # type: ignore[arg-type]
    )
    return config.capture_sizes(**limits | {k: v for k, v in settings.items() if k in limits})  # type: ignore[arg-type]


def test_usual_sizes_are_those_of_vllm_up_to_the_largest_batch() -> None:
    usual = sizes()
    assert usual[:6] == (1, 2, 4, 8, 16, 24)
    assert usual[-3:] == (240, 248, 256)
    assert sizes(max_num_seqs=6) == (1, 2, 4, 6)
    assert sizes(max_num_seqs=300)[-4:] == (256, 272, 288, 300)
    assert sizes(max_num_seqs=1000)[-1] == 512


def test_sizes_can_be_set() -> None:
    assert sizes(cudagraph_capture_sizes=(8, 2, 2)) == (2, 8)
    assert sizes(max_cudagraph_capture_size=32)[-1] == 32


def test_no_size_is_larger_than_a_step() -> None:
    assert sizes(max_num_batched_tokens=20)[-1] == 20
    assert sizes(cudagraph_capture_sizes=(8, 64), max_num_batched_tokens=20) == (8,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cudagraph_capture_sizes": ()}, "--enforce-eager"),
        ({"cudagraph_capture_sizes": (0, 4)}, "1 token or more"),
        ({"max_cudagraph_capture_size": 0}, "must be 1 or more"),
        ({"cudagraph_capture_sizes": (4, 8), "max_cudagraph_capture_size": 4}, "goes up to 8"),
        ({"attention_backend": "XFORMERS"}, "choose one of FLASHINFER"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        CompilationConfig(**settings)  # type: ignore[arg-type]


def test_shapes_are_captured_largest_first() -> None:
    shapes = shapes_of((1, 2, 4, 8), max_num_seqs=4, query_lens=(1, 3))
    assert shapes == (
        DecodeShape(2, 3),
        DecodeShape(4, 1),
        DecodeShape(1, 3),
        DecodeShape(2, 1),
        DecodeShape(1, 1),
    )


@pytest.mark.parametrize(
    ("query_lens", "expected"),
    [
        ([1], DecodeShape(2, 1)),
        ([1, 1], DecodeShape(2, 1)),
        ([1, 1, 1], DecodeShape(4, 1)),
        ([3, 3], DecodeShape(2, 3)),
        ([1] * 5, None),
        ([1, 3], None),
        ([2, 2], None),
        ([3, 3, 3], None),
    ],
)
def test_a_step_gets_the_smallest_shape_that_holds_it(
    query_lens: list[int], expected: DecodeShape | None
) -> None:
    shapes = DecodeShapes([DecodeShape(4), DecodeShape(2), DecodeShape(2, 3)])
    assert shapes.fitting(step(query_lens, [n + 4 for n in query_lens])) == expected


def test_padding_is_sequences_in_the_null_block() -> None:
    inputs = step([1, 1], [9, 2])
    padded = pad_decodes(inputs, DecodeShape(4), BLOCK_SIZE)
    assert padded.token_ids.tolist() == [100, 101, 0, 0]
    assert padded.positions.tolist() == [8, 1, 0, 0]
    assert padded.slot_mapping.tolist() == [[12, 45, 0, 0]]
    assert padded.seq_lens.tolist() == [9, 2, 1, 1]
    assert padded.block_tables.tolist() == [[[1, 2, 3], [11, 0, 0], [0, 0, 0], [0, 0, 0]]]


def test_padding_of_several_tokens_sees_its_own_alone() -> None:
    padded = pad_decodes(step([6], [7]), DecodeShape(2, 6), BLOCK_SIZE)
    assert padded.positions.tolist()[6:] == [0, 1, 2, 3, 4, 5]
    assert padded.slot_mapping[0, 6:].tolist() == [0, 1, 2, 3, 0, 1]
    assert padded.seq_lens.tolist() == [7, 6]
    assert padded.query_lens.tolist() == [6, 6]


def test_what_fills_its_shape_is_not_padded() -> None:
    inputs = step([1, 1], [9, 2])
    padded = pad_decodes(inputs, DecodeShape(2), BLOCK_SIZE)
    assert padded.slot_mapping.tolist() == inputs.slot_mapping.tolist()
    assert padded.block_tables.tolist() == inputs.block_tables.tolist()
