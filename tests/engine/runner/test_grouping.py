from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.runner.grouping import TILE_QUERIES, batch_order, group_sequences

SEQUENCES = st.lists(
    st.tuples(st.integers(0, 3000), st.one_of(st.just(1), st.integers(1, 900))),
    min_size=1,
    max_size=60,
)


def in_order(sequences: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    query_lens = np.array([now for _, now in sequences])
    seq_lens = query_lens + np.array([before for before, _ in sequences])
    order = batch_order(query_lens, seq_lens)
    return query_lens[order], seq_lens[order]


@given(SEQUENCES)
def test_every_query_is_in_one_group(sequences: list[tuple[int, int]]) -> None:
    query_lens, seq_lens = in_order(sequences)
    groups = group_sequences(query_lens, seq_lens, block_size=16, max_group_tokens=4096)
    covered = [
        token
        for group in groups
        for start, count in zip(group.query_start, group.query_lens, strict=True)
        for token in range(start, start + count)
    ]
    assert sorted(covered) == list(range(query_lens.sum()))


@given(SEQUENCES)
def test_a_group_gathers_all_keys_that_its_queries_see(sequences: list[tuple[int, int]]) -> None:
    query_lens, seq_lens = in_order(sequences)
    for group in group_sequences(query_lens, seq_lens, block_size=16, max_group_tokens=4096):
        assert (group.seq_lens <= group.num_blocks * 16).all()


@given(SEQUENCES, st.integers(1, 200))
def test_within_a_window_a_group_gathers_just_what_its_queries_see(
    sequences: list[tuple[int, int]], window: int
) -> None:
    query_lens, seq_lens = in_order(sequences)
    for group in group_sequences(
        query_lens, seq_lens, block_size=16, max_group_tokens=4096, sliding_window=window
    ):
        oldest_seen = np.maximum(group.seq_lens - group.query_lens - window + 1, 0)
        assert (group.first_blocks == oldest_seen // 16).all()
        assert (group.seq_lens <= (group.first_blocks + group.num_blocks) * 16).all()
        assert group.num_blocks <= -(-(window - 1 + group.query_lens.max()) // 16) + 1


@given(SEQUENCES)
def test_a_group_stays_within_its_tokens_unless_one_sequence_needs_more(
    sequences: list[tuple[int, int]],
) -> None:
    query_lens, seq_lens = in_order(sequences)
    for group in group_sequences(query_lens, seq_lens, block_size=16, max_group_tokens=4096):
        assert len(group.sequences) == 1 or len(group.sequences) * group.num_blocks * 16 <= 4096
        assert group.query_lens.max() <= TILE_QUERIES


def test_decodes_of_one_length_are_one_group() -> None:
    query_lens, seq_lens = in_order([(100, 1)] * 32)
    groups = group_sequences(query_lens, seq_lens, block_size=16, max_group_tokens=8192)
    assert [len(group.sequences) for group in groups] == [32]


def test_a_long_decode_does_not_pad_the_short_ones() -> None:
    query_lens, seq_lens = in_order([(30, 1)] * 31 + [(4000, 1)])
    groups = group_sequences(query_lens, seq_lens, block_size=16, max_group_tokens=8192)
    assert [len(group.sequences) for group in groups] == [1, 31]


def test_the_first_tile_of_a_prompt_sees_only_its_own_keys() -> None:
    query_lens, seq_lens = in_order([(0, 2048)])
    groups = group_sequences(query_lens, seq_lens, block_size=16, max_group_tokens=8192)
    assert groups[0].num_blocks == TILE_QUERIES // 16
