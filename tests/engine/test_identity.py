"""What an engine says of itself is what it was told, not what is usual."""

from __future__ import annotations

from dataclasses import replace

from engine.config import KVConnectorConfig, KVGroupConfig, SpeculationConfig
from engine.identity import DeviceMemory, describe, introduce
from tests.engine.builders import config


def test_the_description_follows_the_settings() -> None:
    settings = replace(
        config(async_scheduling=True, max_loras=2),
        speculation=SpeculationConfig(num_speculative_tokens=3),
        kv_connector=KVConnectorConfig(role="kv_consumer"),
    )
    row = introduce(started_ts=0, model="m", version=None)
    row = describe(row, settings, device="cpu", memory=DeviceMemory())
    assert row.async_scheduling is True
    assert (row.max_loras, row.num_speculative_tokens) == (2, 3)
    assert row.kv_connector == "kv_consumer"


def test_a_token_takes_up_a_place_in_every_kv_group() -> None:
    settings = config(num_usable_blocks=9, block_size=4)
    groups = (KVGroupConfig("full", 4), KVGroupConfig("sliding_window", 4, 8))
    both = replace(settings, cache=replace(settings.cache, groups=groups))
    row = introduce(started_ts=0, model="m", version=None)
    memory = DeviceMemory()
    assert describe(row, settings, device="cpu", memory=memory).num_kv_tokens == 36
    assert describe(row, both, device="cpu", memory=memory).num_kv_tokens == 16


def test_what_is_not_in_use_is_null() -> None:
    row = introduce(started_ts=0, model="m", version=None)
    row = describe(row, config(), device="cpu", memory=DeviceMemory())
    assert (row.max_loras, row.num_speculative_tokens, row.kv_connector) == (None, None, None)
