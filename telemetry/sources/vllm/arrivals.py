"""A request's arrival, as the record has it: what was asked for, without a word of the text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from telemetry.content_hashes import ContentHashes, Item
from telemetry.records import RequestArrived
from telemetry.sources.vllm.compatibility import Features
from telemetry.sources.vllm.keys import HASH_BYTES, SaltedKeys
from telemetry.sources.vllm.lives import Life
from telemetry.sources.vllm.trace_context import NO_TRACE, trace_context

EARLIEST_WALL_SECONDS = 1_000_000_000.0
"""An `arrival_time` below this is no time of day (a benchmark's own count, perhaps)."""
KEEPS_IDS = "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"

_SUFFIX = re.compile(r"-[0-9a-f]{8}$")


def extends_ids(environ: Mapping[str, str]) -> bool:
    """Returns whether vLLM adds something of its own to the ids of its callers."""
    return environ.get(KEEPS_IDS, "0") in ("", "0")


def caller_id(request_id: str, *, is_extended: bool) -> str:
    """Returns a request's id as its caller knows it: vLLM adds 8 hex digits, or is told not to."""
    return _SUFFIX.sub("", request_id) if is_extended else request_id


def arrival(
    life: Life, keys: SaltedKeys, features: Features, *, is_extended: bool
) -> RequestArrived:
    """Returns the event of a request's arrival, without step and prefix hashes.

    Args:
        is_extended: whether vLLM has added to the caller's id.
    """
    request = life.request
    sampling = request.sampling_params
    trace = trace_context(request.trace_headers) if features.trace_context else NO_TRACE
    event = RequestArrived(
        ts=life.arrived_ts,
        request=life.number,
        request_id=caller_id(request.request_id, is_extended=is_extended),
        num_prompt_tokens=request.num_prompt_tokens,
        max_tokens=request.max_tokens,
        min_tokens=getattr(sampling, "min_tokens", None),
        ignore_eos=getattr(sampling, "ignore_eos", None),
        priority=request.priority,
        arrival_time=request.arrival_time,
        adapter=None if request.lora_request is None else request.lora_request.lora_name,
        salt_key=keys.of(request.cache_salt),
        reads_cache=not request.skip_reading_prefix_cache,
        session=_session(request),
        received_ts=_received_ts(request.arrival_time),
        trace_id=trace.trace_id,
        parent_span_id=trace.span_id,
        trace_sampled=trace.is_sampled,
    )
    if features.grammar and request.structured_output_request is not None:
        event.grammar_key = keys.of(_grammar_text(request.structured_output_request))
    if features.encoder and request.mm_features:
        _add_items(event, request.mm_features, keys)
    return event


def prefix_hashes(life: Life, keys: SaltedKeys, block_size: int) -> bytes | None:
    """Returns the keyed hashes of a request's full blocks; None where vLLM hashes none.

    8 bytes, little-endian, say how many tokens a block has; then come 8 bytes a block. What was
    hashed before is not hashed again.
    """
    block_hashes = life.request.block_hashes
    if not block_hashes:
        return None
    known = life.blocks
    del known[len(block_hashes) * HASH_BYTES :]
    known += keys.of_blocks(block_hashes[len(known) // HASH_BYTES :])
    return block_size.to_bytes(HASH_BYTES, "little") + known


def content_hashes(request: Any, contents: ContentHashes) -> bytes | None:
    """Returns what is in the full blocks of a prompt, whatever vLLM finds them by.

    None where vLLM hashes none, and where a part of the prompt came as embeddings: what is in it
    is not known.
    """
    if not request.block_hashes or request.prompt_token_ids is None:
        return None
    if request.prompt_embeds is not None:
        return None
    places = [(item.identifier, item.mm_position) for item in request.mm_features or ()]
    items = [Item(key, place.offset, place.offset + place.length) for key, place in places]
    return contents.of(request.prompt_token_ids, items)


def _session(request: Any) -> str | None:
    """Returns which conversation of appended inputs a request is, if it is one."""
    if not request.resumable:
        return None
    return str(getattr(request, "session_id", None) or request.request_id)


def _received_ts(arrival_time: float) -> int | None:
    return int(arrival_time * 1e9) if arrival_time > EARLIEST_WALL_SECONDS else None


def _grammar_text(structured: Any) -> str:
    kind, text = structured.structured_output_key
    return f"{kind}:{text}"


def _add_items(event: RequestArrived, items: Any, keys: SaltedKeys) -> None:
    event.item_positions = [item.mm_position.offset for item in items]
    event.item_embeds = [item.mm_position.get_num_embeds() for item in items]
    event.item_keys = " ".join(keys.of(item.identifier) or "" for item in items)
