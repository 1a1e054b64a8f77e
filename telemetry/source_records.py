"""Rows of what other sources say of an engine: scrapes, log files, spans, KV events.

`import_id` is that of the import which brought a row; NULL where the collector took it live. Texts
come from outside and are never trusted. Column types and rules are those of `telemetry.records`.
This module is a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.records import F8, I8, U4, U8, Text, column


@dataclass(slots=True, kw_only=True)
class SampleRow:
    """A value scraped from elsewhere."""

    ts: I8 = column("when it was scraped", 0)
    source: Text = column("kind of the source: prometheus, vllm-log", "")
    metric: Text = column("name as the source spells it", "")
    labels: Text | None = column("labels, JSON with sorted keys")
    value: F8 | None = column("value; of a histogram, the count of a bucket")
    import_id: U8 | None = column("the import that brought it")


@dataclass(slots=True, kw_only=True)
class LogLineRow:
    """A line of an engine's log that tells of something going wrong, or of its life."""

    ts: I8 = column("when it was written", 0)
    source: Text = column("kind of the log: vllm-log", "")
    line: U8 | None = column("number of the line in its file, from 1")
    process: Text | None = column("process that wrote it, as the log names it")
    level: Text | None = column("DEBUG, INFO, WARNING, ERROR or CRITICAL")
    kind: Text = column("what it tells of, as docs/sources.md lists", "")
    text: Text | None = column("the message, shortened; never of a request's content")
    import_id: U8 | None = column("the import that brought it")


@dataclass(slots=True, kw_only=True)
class EngineSpanRow:
    """A span that an engine exported: vLLM's `llm_request`, or one of its start."""

    ts: I8 = column("when it ended", 0)
    start_ts: I8 | None = column("when it started")
    trace_id: Text | None = column("trace, 32 hex digits")
    span_id: Text | None = column("span, 16 hex digits")
    parent_span_id: Text | None = column("span of the caller, 16 hex digits")
    name: Text = column("name of the span", "")
    service: Text | None = column("service.name of the resource")
    request_id: Text | None = column("the caller's id of the request")
    model: Text | None = column("model that answered")
    num_prompt_tokens: U4 | None = column("prompt tokens")
    num_output_tokens: U4 | None = column("output tokens")
    max_tokens: U4 | None = column("limit of output tokens")
    queue_ns: I8 | None = column("time in the queue, before the first admission only")
    ttft_ns: I8 | None = column("arrival to first output token")
    prefill_ns: I8 | None = column("first admission to first output token")
    decode_ns: I8 | None = column("first to last output token")
    e2e_ns: I8 | None = column("arrival to the end")
    attributes: Text | None = column("its other known attributes, JSON; no text of a request")
    import_id: U8 | None = column("the import that brought it")


@dataclass(slots=True, kw_only=True)
class KvEventRow:
    """Blocks that entered or left an engine's prefix cache. No token ids."""

    ts: I8 = column("when it was published", 0)
    batch: U8 | None = column("number of the message that carried it; a gap is a loss")
    event_index: U4 | None = column("its place in the message, from 0")
    kind: Text = column("stored, removed or cleared", "")
    num_blocks: U4 | None = column("KV blocks concerned")
    block_size: U4 | None = column("tokens of a block")
    medium: Text | None = column("where the blocks lie, as the engine says")
    adapter: Text | None = column("LoRA adapter")
    group_index: U4 | None = column("KV cache group")
    parent_hash: Text | None = column("keyed hash of the block before the first, 16 hex digits")
    block_hashes: Text | None = column("keyed hashes of the blocks, with spaces between")
    import_id: U8 | None = column("the import that brought it")


@dataclass(slots=True, kw_only=True)
class ImportRow:
    """An import that was carried out, whole."""

    ts: I8 = column("when it was done", 0)
    import_id: U8 = column("first 64 bits of the content's digest", 0)
    source: Text = column("kind of the source", "")
    name: Text = column("file, directory or address that was read", "")
    from_ts: I8 | None = column("time of its first row")
    until_ts: I8 | None = column("time of its last row")
    num_rows: U8 = column("rows that it brought", 0)
    unit: Text = column("what was read: pages, lines, spans, messages", "")
    num_read: U8 = column("of these, understood", 0)
    num_unread: U8 = column("of these, not understood", 0)
    detail: Text | None = column("JSON: how many of which kind, and examples of what was not")
