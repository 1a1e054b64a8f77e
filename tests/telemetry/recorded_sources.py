"""What else a vLLM would have told of the recorded incident: spans, KV events and scrapes.

Both are made of what was recorded, as `output_processor.py` and `kv_events.py` of vLLM would have
told it, and read by the sources that read vLLM's. One message of KV events is lost on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from telemetry.sources.kv_events.hashes import BlockHasher
from telemetry.sources.kv_events.messages import decode
from telemetry.sources.kv_events.rows import rows_of
from telemetry.sources.kv_events.streams import Streams
from telemetry.sources.otlp.spans import take_apart
from telemetry.sources.rows import SourceRows, write_days
from telemetry.store import open_log
from telemetry.store.writer import LogWriter
from tests.telemetry.recorded_scrapes import scrape_rows

LATER = 1 << 62
LOST_MESSAGE = 20
BLOCK_SIZE = 16
_ENDED = "FROM requests WHERE finish_reason IN ('stop', 'length') ORDER BY engine, request"
_MOVES = (
    "SELECT e.ts, event_kind_name(e.kind) AS kind, a.request, a.num_prompt_tokens, a.adapter "
    "FROM request_events e JOIN request_arrivals a USING (engine, request) "
    "WHERE e.engine = (SELECT min(engine) FROM steps) "
    "AND event_kind_name(e.kind) IN ('admitted', 'resumed', 'preempted') ORDER BY e.seq"
)


def record_sources(directory: Path, day: str) -> None:
    """Adds them to the log of the recorded incident."""
    with open_log(directory) as log:
        ended = log.query(_ENDED).to_pylist()
        moves = log.query(_MOVES).to_pylist()
        samples = list(scrape_rows(log))
    rows = SourceRows()
    taken = take_apart(export_of(ended), earliest_ts=0, latest_ts=LATER)
    rows.add("engine_spans", [span.row for span in taken.spans])
    rows.add("kv_events", kv_event_rows(moves))
    rows.add("samples", samples)
    writer = LogWriter(directory, [day], dense=False)
    write_days(writer, rows.take())
    writer.close()


def export_of(requests: list[dict[str, Any]]) -> Any:
    """Returns the export request in which a vLLM would have told that these have finished."""
    export = trace_service_pb2.ExportTraceServiceRequest()
    resource = export.resource_spans.add()
    attribute(resource.resource, "service.name", "vllm")
    scope = resource.scope_spans.add()
    scope.scope.name = "vllm.tracing.otel"
    for index, request in enumerate(requests, 1):
        span = scope.spans.add(name="llm_request", kind=2)
        span.trace_id, span.span_id = index.to_bytes(16, "big"), index.to_bytes(8, "big")
        span.start_time_unix_nano = request["ts"]
        span.end_time_unix_nano = request["finished_ts"]
        attribute(span, "gen_ai.request.id", request["request_id"])
        attribute(span, "gen_ai.usage.prompt_tokens", request["num_prompt_tokens"])
        attribute(span, "gen_ai.usage.completion_tokens", request["num_output_tokens"])
        for name, key in (
            ("time_in_queue", "queue_ns"),
            ("time_in_model_prefill", "prefill_ns"),
            ("time_in_model_decode", "decode_ns"),
            ("time_to_first_token", "ttft_ns"),
            ("e2e", "e2e_ns"),
        ):
            attribute(span, f"gen_ai.latency.{name}", request[key] / 1e9)
    return export


def attribute(of: Any, key: str, value: str | int | float) -> None:
    pair = of.attributes.add(key=key)
    match value:
        case str():
            pair.value.string_value = value
        case bool():
            pair.value.bool_value = value
        case int():
            pair.value.int_value = value
        case float():
            pair.value.double_value = value


def kv_event_rows(moves: list[dict[str, Any]]) -> Iterator[Any]:
    """Yields the rows of what a vLLM would have published: prompts stored, and evicted."""
    stream = Streams("tcp://127.0.0.1:5557").find(b"", 0)
    assert stream is not None
    for number, move in enumerate(moves):
        if number == LOST_MESSAGE:
            continue
        batch = decode(message(move))
        hasher = BlockHasher(bytes(32))
        yield from rows_of(batch, engine=stream.engine, number=number, hasher=hasher)


def message(move: dict[str, Any]) -> bytes:
    num_shared = 2  # of an adapter's requests
    shared = [f"{move['adapter']}/{i}".encode() for i in range(num_shared)]
    num_own = move["num_prompt_tokens"] // BLOCK_SIZE - num_shared
    own = [f"{move['request']}/{i}".encode() for i in range(num_own)]
    if move["kind"] == "preempted":
        events = [
            {"type": "BlockRemoved", "block_hashes": [block], "medium": "GPU", "group_idx": 0}
            for block in own
        ]
    else:
        events = [
            {
                "type": "BlockStored",
                "block_hashes": shared + own,
                "parent_block_hash": None,
                "token_ids": [7] * BLOCK_SIZE,
                "block_size": BLOCK_SIZE,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": move["adapter"],
                "group_idx": 0,
            }
        ]
    return msgspec.msgpack.encode([move["ts"] / 1e9, events, 0])
