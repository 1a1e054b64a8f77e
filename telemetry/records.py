"""The rows of the record: what is written down about a step, a request, an engine.

Each dataclass here is one kind of row. Its fields are the columns: the annotation gives the stored
type, `None` among its values means "not measured, or not in use" (never 0), and `column(...)` says
in words what the number is. The ring lays its memory out by `columns_of`, the step log makes its
tables of them (`telemetry.tables`); neither names a column itself. Rows that no engine writes are
in `telemetry.log_records` (the collector's) and `telemetry.source_records` (from elsewhere).

Units are in the names: `_ns` nanoseconds, `_bytes` bytes, `num_` counts. `ts` is nanoseconds since
the Unix epoch on the run's own clock (`RunClock`). There is no prompt or output text and no token
id anywhere in the record.

This module is a leaf: standard library and numpy only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from telemetry.vocabulary import EventKind

SCHEMA_VERSION = 5
"""Version of the tables. Columns may be added under a new version; a meaning never changes.

2: the table `session_inputs`, and in other tables what a replay needs (docs/record.md).
3: lean dense rows, what the collector keeps of an engine, and `removed_days`.
4: what other sources say: `log_lines`, `engine_spans`, `kv_events`, `imports`.
5: the life of findings: what changed, how often, and what people said (`findings`).
"""

U1 = Annotated[int, "u1"]
U2 = Annotated[int, "u2"]
U4 = Annotated[int, "u4"]
U8 = Annotated[int, "u8"]
I4 = Annotated[int, "i4"]
I8 = Annotated[int, "i8"]
F8 = Annotated[float, "f8"]
Flag = Annotated[bool, "bool"]
Text = Annotated[str, "str"]
Counts = Annotated[list[int], "u4[]"]
Hashes = Annotated[bytes, "hashes"]
"""Keyed block hashes (`PrefixHashes`): they pass through the ring and are never stored."""

NULLS: dict[str, int] = {
    **{f"u{size}": (1 << (8 * size)) - 1 for size in (1, 2, 4, 8)},
    **{f"i{size}": -(1 << (8 * size - 1)) for size in (4, 8)},
}
"""How the ring stores NULL, per type: the largest unsigned, the smallest signed value."""


def column(doc: str, default: Any = None) -> Any:
    """Returns a dataclass field that is a column, documented by `doc`."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `dtype` is a numpy type code, or `str`, `bool`, `u4[]`."""

    name: str
    dtype: str
    nullable: bool
    doc: str


def columns_of(row: Any) -> tuple[Column, ...]:
    """Returns the columns that the fields of a row class describe, in order."""
    hints = get_type_hints(row, include_extras=True)
    return tuple(_column(f.name, hints[f.name], f.metadata.get("doc", "")) for f in fields(row))


def _column(name: str, hint: Any, doc: str) -> Column:
    options = (hint,) if get_origin(hint) is Annotated else get_args(hint)
    codes = [option.__metadata__[0] for option in options if get_origin(option) is Annotated]
    return Column(name, codes[0], type(None) in options, doc)


@dataclass(frozen=True, slots=True)
class RunClock:
    """The one clock of an engine start: monotonic, anchored once to the wall clock.

    Never re-based inside a start, so intervals are exact; `clock_anchors` shows how far the wall
    clock has drifted from it.
    """

    wall_anchor_ns: int
    monotonic_anchor_ns: int

    @classmethod
    def start(cls) -> RunClock:
        """Returns a clock anchored now."""
        return cls(time.time_ns(), time.monotonic_ns())

    def now(self) -> int:
        """Returns nanoseconds since the Unix epoch on this clock."""
        return self.wall_anchor_ns + time.monotonic_ns() - self.monotonic_anchor_ns


# ---------------------------------------------------------------------------------------- steps


@dataclass(slots=True, kw_only=True)
class StepRow:
    """One call of `schedule()`, its execution and its update."""

    step: U8 = column("call of schedule() since the engine started, from 0", 0)
    ts: I8 = column("when schedule() began", 0)
    updated_ts: I8 | None = column("when the update of this step ended")
    schedule_ns: I8 | None = column("time in schedule()")
    bitmask_ns: I8 | None = column("time filling grammar bitmasks")
    inputs_ns: I8 | None = column("time building the model's inputs")
    forward_ns: I8 | None = column("time in the model's forward pass")
    draft_ns: I8 | None = column("time proposing draft tokens")
    sample_ns: I8 | None = column("time sampling")
    connector_ns: I8 | None = column("time in KV connector calls")
    update_ns: I8 | None = column("time in update_from_output()")
    num_steps_in_flight: U2 | None = column("steps scheduled but not updated, with this one")
    graph_mode: U1 | None = column("0 eager, 1 piecewise, 2 full CUDA graph")
    num_repeats: U4 = column("equal steps that scheduled nothing, told in this one row", 1)
    token_budget: U4 | None = column("tokens this step could schedule")
    num_scheduled_tokens: U4 | None = column("tokens scheduled in all")
    num_prefill_tokens: U4 | None = column("of these, prompt tokens computed for the first time")
    num_decode_tokens: U4 | None = column("of these, output tokens computed for the first time")
    num_recomputed_tokens: U4 | None = column("of these, computed before and lost to a preemption")
    num_draft_tokens: U4 | None = column("of these, draft tokens to verify")
    num_padding_tokens: U4 | None = column("of these, padding drafts")
    num_prefill_requests: U4 | None = column(
        "requests with more than one token to do, or no output"
    )
    num_decode_requests: U4 | None = column("requests with outputs and just the newest token to do")
    num_zero_requests: U4 | None = column("running requests given no token")
    top_request: U4 | None = column("the request that was given most tokens")
    top_request_tokens: U4 | None = column("what it was given")
    encoder_budget: U4 | None = column("encoder embeddings this step could compute")
    num_encoder_embeds: U4 | None = column("encoder embeddings scheduled")
    encoder_cache_free: U4 | None = column("free encoder cache, in embeddings")
    encoder_cache_reclaimable: U4 | None = column("encoder cache nobody refers to, in embeddings")
    num_running: U4 | None = column("running requests after schedule()")
    num_waiting: U4 | None = column("waiting requests after schedule(), skipped and holding too")
    num_skipped_waiting: U4 | None = column("waiting requests set aside for a SkipReason")
    num_kv_holding_waiting: U4 | None = column("waiting requests that hold KV blocks")
    num_loads_in_flight: U4 | None = column("asynchronous KV loads not finished")
    num_loaded_not_promoted: U4 | None = column("loads finished whose request is not running")
    oldest_load_ns: I8 | None = column("age of the oldest load in flight")
    num_blocks_free_unhashed: U4 | None = column("free KV blocks with nothing in them")
    num_blocks_free_cached: U4 | None = column("free KV blocks that a prefix can still hit")
    num_blocks_running: U4 | None = column("KV blocks of running requests, each once")
    num_blocks_waiting: U4 | None = column("KV blocks of waiting requests")
    num_blocks_finished: U4 | None = column("KV blocks kept for requests that have ended")
    num_blocks_deferred_free: U4 | None = column("KV blocks whose release waits for a step")
    num_blocks_given_up: U4 | None = column("KV blocks that a load given up may still write into")
    num_admitted: U4 | None = column("requests admitted for the first time")
    num_resumed: U4 | None = column("requests admitted again after a preemption")
    num_preempted: U4 | None = column("requests preempted")
    num_preemptions_total: U8 | None = column("the scheduler's own counter after this step")
    stop_reason: U1 | None = column("StopReason: why admission ended")
    head_request: U4 | None = column("head of the queue when admission ended")
    head_blocks_needed: U4 | None = column("KV blocks the head needed to be admitted")
    min_follower_blocks_needed: U4 | None = column("least KV blocks any of 16 followers needs")
    num_adapters: U4 | None = column("different adapters in the step")
    num_prefix_hit_tokens: U4 | None = column("tokens admitted from the prefix cache")
    num_external_tokens: U4 | None = column("tokens admitted from a KV connector")
    num_drafted: U4 | None = column("draft tokens proposed")
    num_placed: U4 | None = column("draft tokens scheduled for verification")
    num_accepted: U4 | None = column("draft tokens accepted")
    throttled: U1 | None = column("1 where prefills were throttled in this step, 0: asked in vain")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequests:
    """The dense rows of a step: one array entry a request in the step, in scheduling order.

    Arrays are owned by the caller and read before `record_step` returns. A column that the source
    cannot know is `None`. `zero_reason` is 255 where the request was given tokens.
    """

    request: npt.NDArray[np.uint32]
    num_wanted_tokens: npt.NDArray[np.uint32] | None = None
    num_scheduled_tokens: npt.NDArray[np.uint32] | None = None
    num_computed_tokens: npt.NDArray[np.uint32] | None = None
    num_known_tokens: npt.NDArray[np.uint32] | None = None
    num_blocks: npt.NDArray[np.uint32] | None = None
    num_drafts: npt.NDArray[np.uint16] | None = None
    num_accepted: npt.NDArray[np.uint16] | None = None
    zero_reason: npt.NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.request)


@dataclass(slots=True, kw_only=True)
class StepRequestRow:
    """Columns of the dense table `step_requests`, one row a request in a step."""

    step: U8 = column("step that the row belongs to", 0)
    request: U4 = column("request, counted per engine start", 0)
    num_wanted_tokens: U4 | None = column("tokens it could have used")
    num_scheduled_tokens: U4 | None = column("tokens it was given")
    num_computed_tokens: U4 | None = column("its computed tokens before this step")
    num_known_tokens: U4 | None = column("its known tokens, with drafts and placeholders")
    num_blocks: U4 | None = column("KV blocks it holds after schedule()")
    num_drafts: U2 | None = column("its draft tokens in this step")
    num_accepted: U2 | None = column("of these, accepted")
    zero_reason: U1 | None = column("ZeroReason: why it was given nothing")


# --------------------------------------------------------------------------------------- events


@dataclass(slots=True, kw_only=True)
class Event:
    """Something that happened to a request or to the engine.

    The recorder numbers events in the order it is given them (`seq`): inside one step that order
    is the explanation. Kinds without numbers of their own use this class as it is.
    """

    TABLE: ClassVar[str | None] = None
    """The table that holds this class's own fields, where it is not `request_events`."""

    kind: U1 = column("EventKind: what happened")
    step: U8 = column("step it belongs to (between steps: the next one)")
    ts: I8 = column("when it happened")
    request: U4 | None = column("request it happened to; NULL for an event of the engine")
    reason: U1 | None = column("SkipReason, FinishReason or Phase, as the kind says")
    num_steps_in_flight: U2 | None = column(
        "steps decided and not taken in when it came from outside; NULL: the scheduler's own doing"
    )
    text: Text | None = column("what a person should read: error text, phase, detail")


@dataclass(slots=True, kw_only=True)
class RequestArrived(Event):
    """A request has been added to the scheduler's queue (a row of `request_arrivals`)."""

    TABLE: ClassVar[str | None] = "request_arrivals"

    kind: U1 = column("EventKind", EventKind.arrived)
    request_id: Text | None = column("the caller's id")
    num_prompt_tokens: U4 = column("prompt tokens", 0)
    max_tokens: U4 | None = column("limit of output tokens")
    min_tokens: U4 | None = column("least output tokens")
    ignore_eos: Flag | None = column("generates past the end-of-sequence token")
    priority: I4 | None = column("smaller is more urgent")
    arrival_time: F8 | None = column("the queue's sort key after priority, in seconds")
    adapter: Text | None = column("LoRA adapter")
    grammar_key: Text | None = column("salted key of the grammar")
    salt_key: Text | None = column("salted key of the cache salt")
    reads_cache: Flag | None = column("looks its prefix up in the cache")
    session: Text | None = column("streaming session")
    received_ts: I8 | None = column("when the server received it")
    tokenized_ts: I8 | None = column("when its prompt was tokenized")
    trace_id: Text | None = column("trace of the caller, 32 hex digits")
    parent_span_id: Text | None = column("span of the caller, 16 hex digits")
    trace_sampled: Flag | None = column("whether the caller records its trace; NULL: without trace")
    item_positions: Counts | None = column("prompt position of each encoder item")
    item_embeds: Counts | None = column("embeddings of each encoder item")
    item_keys: Text | None = column("salted key of each encoder item, with spaces between")
    prefix_request: U4 | None = column("earlier request with the longest shared prefix")
    num_shared_tokens: U4 | None = column("length of that prefix, whole blocks")
    shared_content_blocks: U4 | None = column("equal blocks at another place or under other keys")
    prefix_hashes: Hashes | None = column("hashes of the prompt's blocks")
    content_hashes: Hashes | None = column("hashes of what is in these blocks alone")


@dataclass(slots=True, kw_only=True)
class SessionInputAdded(Event):
    """A session's next turn begins with more input (a row of `session_inputs`)."""

    TABLE: ClassVar[str | None] = "session_inputs"

    kind: U1 = column("EventKind", EventKind.input_added)
    num_input_tokens: U4 = column("tokens of the new input", 0)
    num_prompt_tokens: U4 = column("prompt tokens of the turn: what is kept, and the input", 0)
    max_tokens: U4 | None = column("limit of the turn's output tokens")
    arrival_time: F8 | None = column("the queue's sort key after priority, in seconds")
    prefix_request: U4 | None = column("earlier request with the longest shared prefix")
    num_shared_tokens: U4 | None = column("length of that prefix, whole blocks")
    prefix_hashes: Hashes | None = column("hashes of the prompt's blocks")


@dataclass(slots=True, kw_only=True)
class TurnFinished(Event):
    """A session's turn is over; `reason` is the FinishReason that it would have ended with."""

    kind: U1 = column("EventKind", EventKind.turn_finished)
    num_tokens: U4 | None = column("output tokens of the turn")


@dataclass(slots=True, kw_only=True)
class DraftCounts(Event):
    """Drafts of many requests in one event: `drafts_proposed`, or `drafts_verified`."""

    draft_requests: Counts | None = column("requests whose drafts were proposed, or verified")
    draft_counts: Counts | None = column("for each: drafts that wait for a step, or were accepted")


@dataclass(slots=True, kw_only=True)
class RequestFinished(Event):
    """A request has ended; `reason` is a FinishReason (a row of `request_finishes`)."""

    TABLE: ClassVar[str | None] = "request_finishes"

    kind: U1 = column("EventKind", EventKind.finished)
    num_output_tokens: U4 = column("output tokens", 0)
    num_computed_tokens: U4 | None = column("computed tokens when it ended")
    num_preemptions: U4 = column("times it was preempted", 0)
    queue_ns: I8 | None = column("arrival to first admission")
    prefill_ns: I8 | None = column("first admission to first output token")
    decode_ns: I8 | None = column("first to last output token")
    preempted_ns: I8 | None = column("preempted and waiting, in all")
    load_ns: I8 | None = column("waiting for KV loads, in all")
    mean_itl_ns: I8 | None = column("mean time between output tokens")
    max_itl_ns: I8 | None = column("longest time between output tokens")
    drafts_placed: Counts | None = column("drafts placed, a value a verification")
    drafts_accepted: Counts | None = column("drafts accepted, a value a verification")
    prefix_request: U4 | None = column("other request that shares most of prompt and output")
    num_shared_tokens: U4 | None = column("how much of them it shares, whole blocks")
    prefix_hashes: Hashes | None = column("hashes of the blocks of prompt and output")


@dataclass(slots=True, kw_only=True)
class RequestAdmitted(Event):
    """A request has joined the running ones (`admitted`, or `resumed` after a preemption)."""

    kind: U1 = column("EventKind", EventKind.admitted)
    num_hit_tokens: U4 | None = column("tokens found in the prefix cache; NULL without look-up")
    num_hit_tokens_full_group: U4 | None = column("of these, what the full-attention group found")
    num_external_tokens: U4 | None = column("tokens taken from a KV connector")
    is_async: U1 | None = column("1 where they are loaded asynchronously")
    num_missed_blocks_seen_before: U4 | None = column("missed blocks that had been evicted")
    num_missed_blocks_new: U4 | None = column("missed blocks never seen")
    num_scheduled_tokens: U4 | None = column("tokens scheduled with the admission")


@dataclass(slots=True, kw_only=True)
class RequestPreempted(Event):
    """A running request has lost its blocks and its progress."""

    kind: U1 = column("EventKind", EventKind.preempted)
    cause: U1 | None = column("PreemptionCause")
    victim_rule: U1 | None = column("VictimRule")
    beneficiary: U4 | None = column("request whose allocation failed; NULL for a cache reset")
    beneficiary_allocated: U1 | None = column("0 where it got its blocks not even so")
    victim_priority: I4 | None = column("priority of the victim")
    beneficiary_priority: I4 | None = column("priority of the beneficiary")
    num_blocks_needed: U4 | None = column("KV blocks the failed allocation asked for")
    num_blocks_free_before: U4 | None = column("free KV blocks before the eviction")
    num_blocks_freed: U4 | None = column("KV blocks that the eviction made free")
    num_blocks_deferred: U4 | None = column("KV blocks whose release waits for a step in flight")
    num_computed_tokens_lost: U4 | None = column("computed tokens just before they were zeroed")
    num_in_flight_tokens: U4 | None = column("of these, in steps not updated yet")
    num_output_tokens_kept: U4 | None = column("output tokens it keeps")
    num_withdrawn_tokens: U4 | None = column("tokens given back to this step's budget")
    num_withdrawn_embeds: U4 | None = column("encoder embeddings given back to this step's budget")
    num_withdrawn_drafts: U4 | None = column("draft tokens withdrawn from this step")
    was_prefill: U1 | None = column("1 where it had not reached its newest token")
    nth: U4 | None = column("which preemption of this request, from 1")


@dataclass(slots=True, kw_only=True)
class ConnectorEvent(Event):
    """A stage of a KV or encoder connector: `load_*`, `save_*`, `ack_*`, `lookup_pending`."""

    connector: Text | None = column("connector that did it")
    num_tokens: U4 | None = column("tokens concerned")
    num_blocks: U4 | None = column("KV blocks concerned")
    tier: U1 | None = column("0 device, 1 host, 2 disk, 3 remote")
    peer: Text | None = column("other side of the transfer")
    service_ns: I8 | None = column("time the transfer itself took")
    num_invalid_blocks: U4 | None = column("KV blocks that failed to load")
    invalid_blocks: Counts | None = column("their places in the request; NULL where all failed")
    policy: U1 | None = column("0 recompute, 1 fail")
    num_hit_tokens: U4 | None = column("tokens found in the prefix cache; NULL without look-up")
    is_async: U1 | None = column("1 where they are loaded asynchronously")


@dataclass(slots=True, kw_only=True)
class TokensAppended(Event):
    """Outputs of a request became known without being sampled (jump decoding)."""

    kind: U1 = column("EventKind", EventKind.tokens_appended)
    num_tokens: U4 | None = column("tokens concerned")


@dataclass(slots=True, kw_only=True)
class EncoderItemScheduled(Event):
    """An encoder item runs in this step (a row of `encoder_items`)."""

    TABLE: ClassVar[str | None] = "encoder_items"

    kind: U1 = column("EventKind", EventKind.item_scheduled)
    item_index: U4 = column("index of the item in its request", 0)
    position: U4 = column("prompt position of its first embedding", 0)
    num_embeds: U4 = column("embeddings", 0)
    item_key: Text | None = column("salted key of the item")


@dataclass(slots=True, kw_only=True)
class RecordsDropped(Event):
    """Rows that the ring overwrote before the collector read them."""

    kind: U1 = column("EventKind", EventKind.records_dropped)
    region: Text | None = column("region of the ring")
    first_lost: U8 | None = column("number of the first row lost")
    last_lost: U8 | None = column("number of the last row lost")


EVENT_CLASSES: tuple[type[Event], ...] = (
    Event,
    RequestArrived,
    SessionInputAdded,
    TurnFinished,
    RequestFinished,
    RequestAdmitted,
    RequestPreempted,
    ConnectorEvent,
    DraftCounts,
    TokensAppended,
    EncoderItemScheduled,
    RecordsDropped,
)


# -------------------------------------------------------------------------------------- engines


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRow:
    """An engine start and its settings. `settings` is the whole configuration as JSON."""

    started_ts: I8 = column("when the engine started", 0)
    host: Text | None = column("host name")
    pid: U4 | None = column("process of the step loop")
    boot_id: Text | None = column("boot of the host")
    dp_rank: U4 | None = column("data-parallel rank")
    role: Text | None = column("prefill, decode or both")
    source: Text | None = column("stepscope, or vllm")
    version: Text | None = column("version of the engine")
    model: Text | None = column("model as it is served")
    device: Text | None = column("cpu or cuda")
    settings: Text | None = column("all settings, JSON")
    policy: Text | None = column("fcfs or priority")
    max_num_seqs: U4 | None = column("slots of the running list")
    max_num_active_seqs: U4 | None = column("running requests up to which more are admitted")
    max_num_batched_tokens: U4 | None = column("tokens of a model step")
    max_num_scheduled_tokens: U4 | None = column("tokens that the scheduler may give in a step")
    max_model_len: U4 | None = column("longest prompt and output together")
    block_size: U4 | None = column("tokens of a KV block")
    num_usable_blocks: U4 | None = column("KV blocks that can be handed out")
    has_null_block: Flag | None = column("one more block is reserved as null block")
    num_kv_tokens: U8 | None = column("tokens that the KV pool holds")
    kv_block_bytes: U8 | None = column("memory of one KV block over all layers")
    enable_prefix_caching: Flag | None = column("prefix cache")
    enable_chunked_prefill: Flag | None = column("chunked prefill")
    long_prefill_token_threshold: U4 | None = column("cap of one request's tokens; 0 is off")
    reserve_full_prompt: Flag | None = column("admission waits for the whole prompt's blocks")
    watermark: F8 | None = column("part of the pool kept free of admissions")
    gpu_memory_utilization: F8 | None = column("part of the device the engine may fill")
    async_scheduling: Flag | None = column("two steps in flight")
    max_loras: U4 | None = column("adapters in one step; NULL without LoRA")
    num_speculative_tokens: U4 | None = column("drafts a step; NULL without speculation")
    kv_connector: Text | None = column("KV connector; NULL without")
    memory_total_bytes: U8 | None = column("memory of the device")
    memory_weights_bytes: U8 | None = column("allocated once the weights were loaded")
    memory_activation_bytes: U8 | None = column("peak of the profile run")
    memory_graph_bytes: U8 | None = column("held by CUDA graphs")
    memory_kv_bytes: U8 | None = column("given to the KV pool")
    host_cpu_count: U4 | None = column("processor cores of the host")
    api_url: Text | None = column("where its API listens, as bound; NULL without one")
    detail: Text | None = column("what the collector keeps: steps, transitions, full, sampled=N")
