"""What an engine's start tells becomes columns that rules read, and settings without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.telemetry.sources.vllm_log.builders import LINE, import_text

V0 = """\
INFO 03-14 09:20:00 api_server.py:528] vLLM API server version 0.6.4.post1
INFO 03-14 09:20:00 api_server.py:529] args: Namespace(host='0.0.0.0', port=8000, api_key='sk-1', \
model='facebook/opt-125m', block_size=16, gpu_memory_utilization=0.9, max_num_seqs=64, \
served_model_name=None, ssl_keyfile='/etc/key', enable_lora=False, max_loras=1)
INFO 03-14 09:20:09 llm_engine.py:249] Initializing an LLM engine (v0.6.4.post1) with config: \
model='facebook/opt-125m', speculative_config=None, dtype=torch.float16, max_seq_len=2048, \
device_config=cuda, served_model_name=facebook/opt-125m, enable_prefix_caching=False, \
chunked_prefill_enabled=False, use_async_output_proc=True)
INFO 03-14 09:20:20 model_runner.py:1072] Loading model weights took 0.2389 GB
INFO 03-14 09:20:21 worker.py:272] model weights take 0.24GiB; non_torch_memory takes 0.12GiB; \
PyTorch activation peak memory takes 0.50GiB; the rest of the memory reserved for KV Cache is \
6.00GiB.
INFO 03-14 09:20:22 gpu_executor.py:122] # GPU blocks: 2725, # CPU blocks: 7281
INFO 03-14 09:20:22 gpu_executor.py:126] Maximum concurrency for 2048 tokens per request: 21.29x
INFO 03-14 09:20:40 model_runner.py:1523] Graph capturing finished in 18 secs, took 0.25 GiB
INFO 03-14 09:20:41 launcher.py:19] Available routes are:
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
"""

V1 = """\
INFO 03-14 09:20:00 [api_server.py:1289] vLLM API server version 0.9.2
INFO 03-14 09:20:00 [cli_args.py:309] non-default args: {'model': 'meta/llama', \
'served_model_name': ['chat', 'chat-2'], 'max_num_seqs': 128, 'max_num_batched_tokens': 8192, \
'gpu_memory_utilization': 0.85, 'scheduling_policy': 'priority', 'hf_token': 'hf_1', \
'kv_transfer_config': KVTransferConfig(kv_connector='NixlConnector', kv_role='kv_consumer', \
kv_ip='10.0.0.9', kv_connector_extra_config={}), \
'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 4}}
INFO 03-14 09:20:09 [core.py:70] Initializing a V1 LLM engine (v0.9.2) with config: \
model='meta/llama', dtype=torch.bfloat16, max_seq_len=8192, device_config=cuda, \
served_model_name=chat, enable_prefix_caching=True, chunked_prefill_enabled=True, \
compilation_config={"level":3,"splitting_ops":["vllm.attention"]}
INFO 03-14 09:20:20 [gpu_model_runner.py:1770] Model loading took 14.9889 GiB and 5.1 seconds
INFO 03-14 09:20:21 [gpu_worker.py:232] Available KV cache memory: 50.00 GiB
INFO 03-14 09:20:21 [kv_cache_utils.py:716] GPU KV cache size: 409,600 tokens
INFO 03-14 09:20:21 [kv_cache_utils.py:720] Maximum concurrency for 8,192 tokens per request: 50.00x
INFO 03-14 09:20:30 [loggers.py:137] Engine 000: vllm cache_config_info with initialization after \
num_gpu_blocks is: 25600
INFO 03-14 09:20:41 [api_server.py:1349] Starting vLLM API server 0 on http://0.0.0.0:8000
"""


def test_v0s_start_is_understood(tmp_path: Path) -> None:
    engine = import_text(tmp_path, V0 + LINE).engine()
    expected = {
        "source": "vllm",
        "version": "0.6.4.post1",
        "model": "facebook/opt-125m",
        "device": "cuda",
        "dp_rank": 0,
        "max_num_seqs": 64,
        "max_model_len": 2048,
        "block_size": 16,
        "num_usable_blocks": 2725,
        "has_null_block": False,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": False,
        "gpu_memory_utilization": 0.9,
        "max_loras": None,
        "memory_weights_bytes": round(0.24 * 2**30),
        "memory_activation_bytes": 2**29,
        "memory_kv_bytes": 6 * 2**30,
        "memory_graph_bytes": 2**28,
        "api_url": "http://0.0.0.0:8000",
    }
    assert {name: engine[name] for name in expected} == expected


def test_v1s_start_is_understood(tmp_path: Path) -> None:
    engine = import_text(tmp_path, V1 + LINE).engine()
    expected = {
        "version": "0.9.2",
        "model": "chat",
        "max_num_seqs": 128,
        "max_num_batched_tokens": 8192,
        "policy": "priority",
        "num_kv_tokens": 409_600,
        "num_usable_blocks": 25_599,
        "has_null_block": True,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "kv_connector": "NixlConnector",
        "role": "decode",
        "num_speculative_tokens": 4,
        "memory_kv_bytes": 50 * 2**30,
        "api_url": "http://0.0.0.0:8000",
    }
    assert {name: engine[name] for name in expected} == expected
    assert json.loads(engine["settings"])["max_concurrency"] == 50.0


def test_settings_hold_no_keys_and_no_addresses(tmp_path: Path) -> None:
    for number, text in enumerate((V0, V1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        settings = import_text(folder, text + LINE).engine()["settings"]
        for secret in ("sk-1", "hf_1", "/etc/key", "10.0.0.9"):
            assert secret not in settings


def test_what_no_line_tells_is_not_measured(tmp_path: Path) -> None:
    imported = import_text(tmp_path, LINE)
    engine = imported.engine()
    assert engine["max_num_seqs"] is None
    assert engine["num_usable_blocks"] is None
    assert engine["settings"] is None
    assert any("does not hold the engine's start" in note for note in imported.told()["notes"])


def test_after_a_second_start_in_one_log_its_settings_count(tmp_path: Path) -> None:
    again = V1.replace("09:2", "19:2").replace("'max_num_seqs': 128", "'max_num_seqs': 64")
    imported = import_text(tmp_path, V1 + LINE + again + LINE.replace("09:26", "19:26"))
    assert imported.engine()["max_num_seqs"] == 64
    assert imported.kinds() == ["engine_starting", "engine_starting"]


@pytest.mark.parametrize("order", [("vllm.log.1", "vllm.log"), ("vllm.log", "vllm.log.1")])
def test_a_part_without_the_start_does_not_hide_it(tmp_path: Path, order: tuple[str, str]) -> None:
    parts = {"vllm.log.1": V1 + LINE, "vllm.log": LINE.replace("03-14", "03-15")}
    for name in order:
        imported = import_text(tmp_path, parts[name], name=name)
    engine = imported.engine()
    assert (engine["model"], engine["max_num_seqs"]) == ("chat", 128)


def test_an_engine_is_described_before_its_rows_in_each_day(tmp_path: Path) -> None:
    imported = import_text(tmp_path, V1 + LINE + LINE.replace("03-14", "03-15"))
    assert {path.name for path in imported.log.glob("*.duckdb")} >= {
        "2026-03-14.duckdb",
        "2026-03-15.duckdb",
    }
    assert imported.engine()["model"] == "chat"


def test_several_servers_that_tell_of_one_start_are_no_second_start(tmp_path: Path) -> None:
    args, config, *rest = V1.splitlines(keepends=True)[1:]
    server = "(ApiServer_1 pid=5) "
    imported = import_text(tmp_path, args + config + server + args + "".join(rest) + LINE)
    engine = imported.engine()
    assert (engine["version"], engine["max_num_seqs"]) == ("0.9.2", 128)


def test_the_first_versions_of_v1_are_told_by_their_source_file(tmp_path: Path) -> None:
    text = (
        "INFO 02-13 15:01:00 core.py:47] Initializing an LLM engine (v0.7.3) with config: "
        "model='m'\n"
        "INFO 02-13 15:01:40 kv_cache_utils.py:407] # GPU blocks: 33660\n"
    )
    engine = import_text(tmp_path, text + LINE).engine()
    assert (engine["num_usable_blocks"], engine["has_null_block"]) == (33_659, True)
