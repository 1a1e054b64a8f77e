"""`load` against a real engine with a real model, and against an API that fails."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.commands import add_commands
from engine.workload.plan import WorkloadError
from tests.engine.server.server_process import ServerProcess, serving
from tests.engine.workload.fake_api import FakeApi


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving("--num-gpu-blocks-override", "64", "--max-num-seqs", "32") as running:
        yield running


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(), [])
    options = parser.parse_args(["load", *arguments])
    code: int = options.run(options)
    return code


def test_a_storm_is_answered_to_its_end_through_preemptions(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--url", server.url, "--preset", "storm", "--limit", "16", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["num_answered"] == 16
    assert report["e2e"]["num_samples"] == 16
    assert server.metric("vllm:num_preemptions_total") > 0


def test_a_scaled_trace_hits_the_prefix_cache(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"timestamp": i, "input_length": 1500, "output_length": 40, "hash_ids": [1, 2, 10 + i]}
        for i in range(6)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("--url", server.url, "--trace", str(trace), "--scale", "16") == 0
    assert "6 of 6 requests answered" in capsys.readouterr().out
    hits = server.metric("vllm:prefix_cache_hits_total")
    assert 0 < hits < server.metric("vllm:prefix_cache_queries_total")


def test_one_failed_request_is_exit_code_one(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi(misbehave={2: "cut"}).serving() as url:
        assert run("--url", url, "--preset", "storm", "--limit", "4", "--max-tokens", "3") == 1
    assert "1 failed: the stream ended before the request did" in capsys.readouterr().out


def test_scaling_a_preset_is_refused() -> None:
    with pytest.raises(WorkloadError, match="--scale"):
        run("--url", "http://127.0.0.1:9", "--preset", "storm", "--scale", "2")


def test_the_table_has_every_latency_with_its_samples(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeApi().serving() as url:
        assert run("--url", url, "--preset", "storm", "--limit", "3", "--max-tokens", "3") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("TTFT", "ITL", "TPOT", "e2e", "p50", "p95", "p99"))
    assert "9 output tokens" in " ".join(out.split())
