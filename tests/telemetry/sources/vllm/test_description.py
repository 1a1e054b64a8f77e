"""The record knows what engine it is of, and nothing that is none of its business."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from telemetry.records import EngineRow
from telemetry.ring.header import description_bytes
from telemetry.sources.vllm.compatibility import Compatibility, Features
from telemetry.sources.vllm.description import bare_row, engine_row
from telemetry.sources.vllm.settings import plain, public_settings
from tests.telemetry.sources.vllm.real_findings import real_findings

COMPATIBLE = Compatibility(
    version="0.32.0", scheduler="AsyncScheduler", features=Features(), lacking={}
)


def scheduler(**parts: Any) -> SimpleNamespace:
    """Returns a scheduler of whose configuration only these parts exist."""
    return SimpleNamespace(vllm_config=SimpleNamespace(**parts))


def described(made: SimpleNamespace, compatibility: Compatibility = COMPATIBLE) -> EngineRow:
    return engine_row(made, compatibility, started_ts=7)


def settings_of(made: SimpleNamespace, compatibility: Compatibility = COMPATIBLE) -> Any:
    return json.loads(described(made, compatibility).settings or "")


# --------------------------------------------------------------------------- of a real scheduler


def test_all_that_vllm_knows_has_its_column() -> None:
    row = real_findings()["row"]
    expected = {
        "started_ts": 7,
        "dp_rank": 0,
        "role": "both",
        "source": "vllm",
        "model": "tiny",
        "device": "cpu",
        "policy": "fcfs",
        "max_num_seqs": 8,
        "max_num_active_seqs": 8,
        "max_num_batched_tokens": 256,
        "max_num_scheduled_tokens": 256,
        "max_model_len": 1024,
        "block_size": 32,
        "num_usable_blocks": 64,
        "has_null_block": True,
        "num_kv_tokens": 64 * 32,
        "kv_block_bytes": 2 * 2 * 32 * 32 * 4,
        "memory_kv_bytes": 65 * 2 * 2 * 32 * 32 * 4,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "reserve_full_prompt": True,
        "watermark": 0.25,
        "gpu_memory_utilization": 0.5,
        "async_scheduling": False,
        "kv_connector": "ExampleConnector",
        "max_loras": None,
        "num_speculative_tokens": None,
        "api_url": None,
    }
    assert {name: row[name] for name in expected} == expected


def test_nothing_is_lacking_in_the_version_that_is_tested() -> None:
    assert real_findings()["lacking"] == {"Scheduler": {}, "AsyncScheduler": {}}


def test_real_settings_keep_no_path_no_address_and_no_password() -> None:
    settings = real_findings()["row"]["settings"]
    assert all(word not in settings for word in ("hunter2", "/", "127.0.0.1", "extra_config"))


def test_real_settings_are_told_part_by_part() -> None:
    settings = json.loads(real_findings()["row"]["settings"])
    assert settings["scheduler"]["watermark"] == 0.25
    assert settings["cache"]["cache_dtype"] == "auto"
    assert settings["kv_transfer"]["kv_load_failure_policy"] == "fail"
    assert (settings["lora"], settings["speculative"]) == (None, None)
    (group,) = settings["kv_cache_groups"]
    assert (group["kind"], group["sliding_window"]) == ("full", None)
    assert group["block_size"] == real_findings()["row"]["block_size"]
    assert (settings["log_stats"], settings["has_otlp_traces"]) == (True, False)


def test_real_settings_fit_into_a_ring() -> None:
    row = EngineRow(**real_findings()["row"])
    assert description_bytes(row)[1] == 0


# ------------------------------------------------------------------ of one that is not as expected


def test_what_a_version_does_not_have_is_null_and_the_rest_stands() -> None:
    made = scheduler(
        scheduler_config=SimpleNamespace(max_num_seqs=4, policy="priority"), cache_config=None
    )
    row = described(made)
    assert (row.max_num_seqs, row.policy, row.pid) == (4, "priority", os.getpid())
    assert (row.block_size, row.num_usable_blocks, row.num_kv_tokens, row.watermark) == (None,) * 4


def test_a_value_of_another_kind_is_null() -> None:
    row = described(scheduler(scheduler_config=SimpleNamespace(max_num_seqs="many", policy=3)))
    assert (row.max_num_seqs, row.policy) == (None, None)


@pytest.mark.parametrize(
    ("kv_role", "role"),
    [("kv_producer", "prefill"), ("kv_consumer", "decode"), ("kv_both", "both"), (None, "both")],
)
def test_the_role_is_that_of_the_kv_connector(kv_role: str | None, role: str) -> None:
    transfer = SimpleNamespace(kv_role=kv_role) if kv_role else None
    assert described(scheduler(kv_transfer_config=transfer)).role == role


def test_the_rank_is_the_data_parallel_index() -> None:
    made = scheduler(parallel_config=SimpleNamespace(data_parallel_index=3, data_parallel_rank=0))
    assert described(made).dp_rank == 3


def test_of_several_served_names_the_first_counts() -> None:
    model = SimpleNamespace(served_model_name=["chat", "chat-large"], model="org/chat")
    assert described(scheduler(model_config=model)).model == "chat"


def test_with_several_groups_the_pool_holds_what_vllm_says() -> None:
    made = scheduler(cache_config=SimpleNamespace(kv_cache_size_tokens=5000))
    made.kv_cache_config = SimpleNamespace(num_blocks=65, kv_cache_groups=["full", "window"])
    made.block_size = 32
    assert described(made).num_kv_tokens == 5000


def test_what_is_recorded_and_what_is_not_stands_in_the_settings() -> None:
    partly = Compatibility(
        version="0.33.0",
        scheduler="TheirScheduler",
        features=Features(preemptions=False),
        lacking={"preemptions": "no Scheduler._preempt_request()"},
    )
    told = settings_of(scheduler(), partly)["stepscope"]
    assert (told["scheduler"], told["is_tested"]) == ("TheirScheduler", False)
    assert told["lacking"] == {"preemptions": "no Scheduler._preempt_request()"}
    assert [name for name, is_on in told["features"].items() if not is_on] == ["preemptions"]


def test_an_engine_without_readable_settings_is_still_told_of() -> None:
    row = bare_row(COMPATIBLE, started_ts=7)
    assert (row.source, row.version, row.started_ts) == ("vllm", "0.32.0", 7)
    assert json.loads(row.settings or "")["stepscope"]["lacking"] == {}


# --------------------------------------------------------------------------------------- privacy


@dataclass
class Settings:
    """A part of a configuration that has something of everything."""

    size: int = 3
    ratio: float = 0.5
    name: str = "org/model"
    sizes: list[int] = field(default_factory=lambda: [1, 2])
    hf_token: str = "hf_abc"
    api_key: str = "sk-1"
    redis_password: str = "hunter2"
    master_ip: str = "10.0.0.7"
    otlp_traces_endpoint: str = "collector:4317"
    module_path: str = "x"
    engine_id: str = "e1"
    ray_runtime_env: str = "{}"
    connector_extra_config: str = "{}"
    overrides: dict[str, str] = field(default_factory=lambda: {"chat_template": "You are"})
    weights: str = "/home/ann/weights"
    origin: str = "s3://bucket/key"
    note: str = "two\nlines"
    _private: int = 1


def test_only_what_is_plain_and_public_is_kept() -> None:
    assert public_settings(Settings()) == {
        "size": 3,
        "ratio": 0.5,
        "name": "org/model",
        "sizes": [1, 2],
        "weights": None,
        "origin": None,
        "note": None,
    }


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_no_number_that_json_does_not_know(value: float) -> None:
    assert plain(value) is None


def test_long_values_are_cut() -> None:
    assert len(plain("x" * 10_000)) == 120
    assert len(plain(list(range(10_000)))) == 64
