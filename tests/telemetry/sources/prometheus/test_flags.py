"""Launch flags beside scrapes: typed where the log has a column, public otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import ImportRefused
from telemetry.sources.prometheus.flags import columns, public, read_flags


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({"max_num_seqs": 256}, {"max_num_seqs": 256}),
        ({"max_num_seqs": "256"}, {"max_num_seqs": 256}),
        ({"max_num_seqs": True}, {}),
        ({"max_num_seqs": -1}, {}),
        ({"max_num_seqs": "auto"}, {}),
        ({"gpu_memory_utilization": "0.9"}, {"gpu_memory_utilization": 0.9}),
        ({"enable_prefix_caching": "False"}, {"enable_prefix_caching": False}),
        ({"no_enable_prefix_caching": True}, {"enable_prefix_caching": False}),
        ({"scheduling_policy": "priority"}, {"policy": "priority"}),
        ({"policy": "fcfs"}, {"policy": "fcfs"}),
        ({"kv_connector": "NixlConnector"}, {"kv_connector": "NixlConnector"}),
        ({"role": "prefill"}, {"role": "prefill"}),
        ({"served_model_name": ["m", "n"]}, {"model": "m"}),
        ({"max_loras": 2, "async_scheduling": True}, {"max_loras": 2, "async_scheduling": True}),
        ({"max_running_requests": 64, "page_size": 1}, {"max_num_seqs": 64, "block_size": 1}),
        ({"tp": 4}, {}),
    ],
)
def test_columns(flags: dict[str, Any], found: dict[str, Any]) -> None:
    assert columns(flags) == found


@pytest.mark.parametrize("as_text", [False, True])
def test_a_connector_may_lie_deeper(as_text: bool) -> None:
    inner = '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}'
    value: Any = inner if as_text else {"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}
    assert columns({"kv_transfer_config": value}) == {
        "kv_connector": "NixlConnector",
        "role": "decode",
    }


def test_flags_may_be_written_as_flags(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"--max-num-seqs": 8, "no-enable-prefix-caching": true}')
    assert columns(read_flags(path)) == {"max_num_seqs": 8, "enable_prefix_caching": False}


def test_what_lets_somebody_in_is_not_kept() -> None:
    flags = {"api_key": "sk-1", "host": "h", "model": "/models/x", "tp": 4, "deep": {"a": 1}}
    assert public(flags) == {"model": None, "tp": 4}


@pytest.mark.parametrize("text", ["", "[1]", "{", "7", "[" * 100_000])
def test_a_file_that_holds_no_flags_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ImportRefused, match="launch flags into it"):
        read_flags(path)
