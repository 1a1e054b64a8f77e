"""One vLLM in a storm that tells all it can: the plug-in, its spans, its KV events, in one log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.runner.tiny_llama import tiny_llama
from tests.telemetry.sources.collecting import answers, collecting, source_lines
from tests.whole_line.vllm.load import completion, send
from tests.whole_line.vllm.recording import Installed
from tests.whole_line.vllm.server import free_port, serving, wait_until

NUM_REQUESTS = 24
NUM_PROMPT_TOKENS, MAX_TOKENS = 64, 160
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Storm:
    """What came of it: the log, vLLM's own counter, what the sources said of themselves."""

    log: Path
    num_preemptions: float
    sources: list[str]


@pytest.fixture(scope="module")
def storm(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Storm:
    """Requests that need three times the KV blocks that there are."""
    folder = tmp_path_factory.mktemp("told")
    log, kv = folder / "log", f"127.0.0.1:{free_port()}"
    with collecting(log, "--otlp-grpc", "127.0.0.1:0", "--kv-events", f"tcp://{kv}"):
        spans_to = source_lines(log)[0].split()[3].rstrip(":")
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{kv.rpartition(':')[2]}",
        }
        flags = (
            *("--max-model-len", "1024", "--max-num-seqs", "32", "--num-gpu-blocks-override", "64"),
            *("--otlp-traces-endpoint", f"http://{spans_to}"),
            *("--kv-events-config", json.dumps(events)),
        )
        inside = {
            "STEPSCOPE_LOG": str(log),
            "STEPSCOPE_RING_DIR": str(folder / "rings"),
            "PYTHONPATH": str(installed.site),
            "OTEL_SERVICE_NAME": "storm",
        }
        with serving(installed.python, tiny_llama(), folder / "vllm.log", flags, inside) as server:
            wait_until(lambda: "(1 connected)" in str(source_lines(log)), PATIENCE_SECONDS)
            bodies = [completion(n, NUM_PROMPT_TOKENS, MAX_TOKENS) for n in range(NUM_REQUESTS)]
            stretch = send(server.url, bodies)
            assert {result.failure for result in stretch.results} == {None}
            wait_until(lambda: count(log, "request_traces") == NUM_REQUESTS, PATIENCE_SECONDS)
            wait_until(server.is_idle, PATIENCE_SECONDS)
            counter = server.metric("vllm:num_preemptions_total")
        wait_until(lambda: count(log, "request_finishes") == NUM_REQUESTS, PATIENCE_SECONDS)
        sources = source_lines(log)
    return Storm(log, counter, sources)


def count(log: Path, table: str) -> int:
    return int(answers(log, f"SELECT count(*) AS n FROM {table}")[0]["n"])


def test_each_request_has_its_span_beside_its_record(storm: Storm) -> None:
    rows = answers(
        storm.log,
        "SELECT t.joined_by, t.service, t.num_prompt_tokens, t.num_output_tokens, "
        "r.num_prompt_tokens AS prompt, r.num_output_tokens AS output, count(*) AS n "
        "FROM request_traces t JOIN requests r USING (engine, request) GROUP BY ALL",
    )
    assert rows == [
        {
            "joined_by": "request_id",
            "service": "storm",
            "num_prompt_tokens": NUM_PROMPT_TOKENS,
            "num_output_tokens": MAX_TOKENS,
            "prompt": NUM_PROMPT_TOKENS,
            "output": MAX_TOKENS,
            "n": NUM_REQUESTS,
        }
    ]


def test_the_spans_hide_what_the_record_has(storm: Storm) -> None:
    (row,) = answers(
        storm.log,
        "SELECT sum(num_preemptions)::BIGINT AS n, max(preempted_ns) AS longest, "
        "bool_and(preempted_ns <= span_prefill_ns + span_decode_ns) AS is_inside, "
        "max(hidden_ratio) AS hidden FROM request_traces WHERE num_preemptions > 0",
    )
    assert row["n"] == storm.num_preemptions > 0
    assert row["longest"] > 0
    assert row["is_inside"]
    assert 0 < row["hidden"] <= 1


def test_no_span_is_refused_or_of_somebody_else(storm: Storm) -> None:
    (spans,) = (line for line in storm.sources if line.startswith("OTLP"))
    assert f": {count(storm.log, 'engine_spans')} spans of vLLM, the last" in spans
    assert "refused" not in spans
    assert "others" not in spans


def test_the_start_of_all_processes_is_one_engine(storm: Storm) -> None:
    rows = answers(
        storm.log,
        "SELECT count(DISTINCT engine) AS engines, count(DISTINCT "
        "json_extract_string(attributes, '$.\"vllm.process_kind\"')) AS processes "
        "FROM engine_spans WHERE name <> 'llm_request'",
    )
    assert rows == [{"engines": 1, "processes": 2}]


def test_kv_events_are_complete_and_balance(storm: Storm) -> None:
    (events,) = (line for line in storm.sources if line.startswith("KV events"))
    assert "lost" not in events
    assert "not understood" not in events
    rows = answers(
        storm.log,
        "SELECT count(DISTINCT batch) - 1 - max(batch) + min(batch) AS gaps, "
        "sum(num_blocks) FILTER (kind = 'stored') - sum(num_blocks) FILTER (kind = 'removed') "
        "AS still_there, count(DISTINCT engine) AS engines FROM kv_events",
    )
    assert (rows[0]["gaps"], rows[0]["engines"]) == (0, 1)
    assert 0 < rows[0]["still_there"] <= 64
