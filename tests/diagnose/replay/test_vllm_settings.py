"""The settings of a recorded vLLM, as a replay takes them."""

from __future__ import annotations

import json
from typing import Any

from diagnose.replay.settings import config_from
from engine.config import EngineConfig, KVConnectorConfig


def config(**parts: Any) -> EngineConfig:
    return config_from(json.dumps({"stepscope": {"is_tested": True}, **parts}))


def test_scheduler_and_cache_keep_their_names() -> None:
    made = config(
        scheduler={"max_num_seqs": 32, "policy": "priority", "runner_type": "generate"},
        cache={"block_size": 32, "num_gpu_blocks": 64, "enable_prefix_caching": False},
    )
    assert (made.scheduler.max_num_seqs, made.scheduler.policy) == (32, "priority")
    assert (made.cache.block_size, made.cache.num_gpu_blocks) == (32, 64)
    assert not made.cache.enable_prefix_caching


def test_the_cap_of_adapters_comes_from_loras_own_part() -> None:
    assert config(lora={"max_loras": 2}).scheduler.max_loras == 2
    assert config(lora=None).scheduler.max_loras is None


def test_the_connector_comes_from_the_transfer_part() -> None:
    transfer = {"kv_role": "kv_consumer", "kv_load_failure_policy": "fail", "kv_port": 1}
    wanted = KVConnectorConfig(role="kv_consumer", load_failure_policy="fail")
    assert config(kv_transfer=transfer).kv_connector == wanted
    assert config(kv_transfer=None).kv_connector is None
