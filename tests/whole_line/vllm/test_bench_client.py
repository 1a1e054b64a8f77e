"""vLLM's own benchmark client, from its wheel, against our server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runner.tiny_llama import tiny_llama
from tests.engine.server.server_process import ServerProcess, serving
from tests.vllm_venv import VllmNotInstallableError, vllm_python

NUM_PROMPTS, NUM_OUTPUT_TOKENS = 20, 12
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


@pytest.fixture(scope="module")
def vllm() -> Path:
    """Returns the vLLM command; skips where there can be none."""
    try:
        return vllm_python().with_name("vllm")
    except VllmNotInstallableError as error:
        pytest.skip(f"NO REAL VLLM WAS TESTED: {error}")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving("--num-gpu-blocks-override", "256", "--max-model-len", "512") as server:
        yield server


@pytest.mark.parametrize(
    ("backend", "endpoint"),
    [("openai", "/v1/completions"), ("openai-chat", "/v1/chat/completions")],
)
def test_its_run_is_answered_to_the_last_token(
    vllm: Path, server: ServerProcess, tmp_path: Path, backend: str, endpoint: str
) -> None:
    ended = 'vllm:request_success_total{finished_reason="length"}'
    before = server.metric(ended)
    command = [str(vllm), "bench", "serve", "--backend", backend, "--endpoint", endpoint]
    command += ["--base-url", server.url, "--model", "tiny-llama", "--tokenizer", str(tiny_llama())]
    command += ["--dataset-name", "random", "--random-input-len", "24", "--ignore-eos"]
    command += ["--num-prompts", str(NUM_PROMPTS), "--random-output-len", str(NUM_OUTPUT_TOKENS)]
    command += ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "result.json"]
    run = subprocess.run(
        command, cwd=tmp_path, env=os.environ | OFFLINE, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-4000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["completed"], result["failed"]) == (NUM_PROMPTS, 0)
    assert result["total_output_tokens"] == NUM_PROMPTS * NUM_OUTPUT_TOKENS
    assert result["mean_ttft_ms"] > 0
    assert server.metric(ended) - before == NUM_PROMPTS
