"""A request's blocks over all groups of layers are those that the engine's arithmetic gives."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.facts import EngineSettings
from diagnose.kv_groups import KVGroup, blocks_of, most_tokens, read_groups
from engine.config import CacheConfig, EngineConfig, KVGroupConfig
from engine.kv_cache.group import most_blocks

FULL, WINDOW = KVGroupConfig("full", 16), KVGroupConfig("sliding_window", 16, 100)


def settings_of(*groups: KVGroupConfig, num_gpu_blocks: int = 101) -> EngineSettings:
    """Settings as an engine with these groups writes them."""
    config = EngineConfig(cache=CacheConfig(groups=groups, num_gpu_blocks=num_gpu_blocks))
    return EngineSettings(
        engine=1,
        block_size=16,
        num_usable_blocks=num_gpu_blocks - 1,
        settings=config.to_json(),
    )


@given(
    st.integers(1, 5000),
    st.lists(st.none() | st.integers(1, 500), min_size=1, max_size=6),
    st.integers(1, 64),
)
def test_it_is_what_the_engine_takes(
    num_tokens: int, windows: list[int | None], block_size: int
) -> None:
    groups = tuple(KVGroup(block_size, window) for window in windows)
    specs = [
        KVGroupConfig("full" if w is None else "sliding_window", block_size, w) for w in windows
    ]
    expected = sum(
        most_blocks(spec, num_tokens, in_flight=1, max_model_len=1 << 20) for spec in specs
    )
    assert int(blocks_of(groups, np.array(num_tokens))) == expected


@given(st.lists(st.none() | st.integers(1, 500), min_size=1, max_size=6), st.integers(8, 500))
def test_one_token_more_than_the_most_does_not_fit(
    windows: list[int | None], num_blocks: int
) -> None:
    groups = tuple(KVGroup(16, window) for window in (None, *windows))
    most = most_tokens(groups, num_blocks)
    assert int(blocks_of(groups, np.array(most))) <= num_blocks
    assert int(blocks_of(groups, np.array(most + 1))) > num_blocks


def test_an_engine_s_own_groups_are_read() -> None:
    settings = settings_of(FULL, *[WINDOW] * 5)
    assert settings.blocks_of(320) == 20 + 5 * 8
    assert settings.blocks_of_each(np.array([16, 320])).tolist() == [6, 60]
    assert settings.pool_tokens == 60 * 16


def test_without_groups_there_is_one() -> None:
    settings = settings_of()
    assert settings.blocks_of(17) == 2
    assert settings.pool_tokens == 1600


def test_a_vllm_s_groups_are_read() -> None:
    described = [
        {"kind": "full", "block_size": 16, "sliding_window": None},
        {"kind": "sliding_window", "block_size": 16, "sliding_window": 100},
    ]
    settings = EngineSettings(
        engine=1, block_size=16, settings=json.dumps({"kv_cache_groups": described})
    )
    assert settings.blocks_of(320) == 20 + 8


@pytest.mark.parametrize(
    "described",
    [
        [{"kind": "MambaSpec", "block_size": 16}],
        [{"kind": "full", "block_size": 0}],
        [{"kind": "sliding_window", "block_size": 16, "sliding_window": None}],
        ["full"],
    ],
)
def test_what_is_not_known_is_not_counted(described: list[object]) -> None:
    assert read_groups(described, 16) == ()
    settings = EngineSettings(
        engine=1,
        block_size=16,
        num_usable_blocks=9,
        settings=json.dumps({"kv_cache_groups": described}),
    )
    assert settings.blocks_of(320) is None
    assert settings.pool_tokens is None


def test_sql_says_the_same() -> None:
    assert settings_of(FULL, WINDOW).blocks_sql("n") == (
        "ceil((n) / 16)::BIGINT + least(ceil((n) / 16)::BIGINT, 8)"
    )
