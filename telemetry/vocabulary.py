"""The closed sets of the record: every reason, cause, kind and phase, as the code that is stored.

Codes are UTINYINT and append-only: a code never changes its meaning and is never used again. They
start at 1, so zeroed memory is never mistaken for a value. `VOCABULARIES` feeds the lookup table
that every log file carries. This module is a leaf: standard library only.
"""

from __future__ import annotations

from enum import IntEnum


class SkipReason(IntEnum):
    """Why a waiting request was set aside while the admission scan went on."""

    grammar_compiling = 1
    grammar_failed = 2
    remote_kv_loading = 3
    remote_kv_lookup_pending = 4
    load_started = 5
    lora_slots = 6
    streaming_input = 7
    stale_output = 8
    encoder_transfer = 9


class StopReason(IntEnum):
    """Why the admission scan of a step ended. Each has a remedy of its own."""

    queue_empty = 1
    token_budget = 2
    input_budget = 3
    max_num_seqs = 4
    max_num_active_seqs = 5
    kv_blocks_chunk = 6
    kv_blocks_whole_prompt = 7
    kv_watermark = 8
    kv_reserved_for_loads = 9
    loaded_needs_blocks = 10
    preempted_this_step = 11
    chunked_prefill_disabled = 12
    encoder_budget = 13
    encoder_cache = 14
    draft_padding = 15
    prefill_throttled = 16
    block_alignment = 17
    prefill_lookahead = 18
    paused_new = 19
    paused_all = 20


class ZeroReason(IntEnum):
    """Why a running request was given no token in a step."""

    token_budget = 1
    max_tokens_in_flight = 2
    max_model_len = 3
    pipeline_cadence = 4
    encoder_budget = 5
    encoder_cache = 6
    block_alignment = 7
    prefill_lookahead = 8
    prefill_throttled = 9
    behind_preempted = 10
    victim_not_releasable = 11
    paused_all = 12
    encoder_transfer = 13


class WaitReason(IntEnum):
    """Why a waiting request waits: derived, and total (each one has exactly one in every step).

    A SkipReason keeps its code; a StopReason (of the queue's head) has its code plus 64.
    """

    grammar_compiling = 1
    grammar_failed = 2
    remote_kv_loading = 3
    remote_kv_lookup_pending = 4
    load_started = 5
    lora_slots = 6
    streaming_input = 7
    stale_output = 8
    encoder_transfer = 9
    token_budget = 66
    input_budget = 67
    max_num_seqs = 68
    max_num_active_seqs = 69
    kv_blocks_chunk = 70
    kv_blocks_whole_prompt = 71
    kv_watermark = 72
    kv_reserved_for_loads = 73
    loaded_needs_blocks = 74
    preempted_this_step = 75
    chunked_prefill_disabled = 76
    encoder_budget = 77
    encoder_cache = 78
    draft_padding = 79
    prefill_throttled = 80
    block_alignment = 81
    prefill_lookahead = 82
    paused_new = 83
    paused_all = 84
    behind_head = 128
    not_visited = 129

    @classmethod
    def of(cls, reason: SkipReason | StopReason) -> WaitReason:
        """Returns the wait reason of a request that was skipped, or was the head, for `reason`."""
        return cls(reason if isinstance(reason, SkipReason) else reason + 64)


class PreemptionCause(IntEnum):
    """Why a running request lost its blocks.

    `priority` means that KV was full *and* the victim is less urgent than the beneficiary; an
    arrival alone never preempts.
    """

    kv_full = 1
    priority = 2
    cache_reset = 3


class VictimRule(IntEnum):
    """How the victim of a preemption was chosen."""

    running_tail = 1
    lowest_priority = 2
    itself = 3
    all = 4


class FinishReason(IntEnum):
    """How a request ended. Every request ends exactly once."""

    stop = 1
    length = 2
    abort_client = 3
    abort_api = 4
    abort_timeout = 5
    error = 6
    refused = 7


class Phase(IntEnum):
    """What the engine's step loop is doing."""

    idle = 1
    schedule = 2
    bitmask = 3
    inputs = 4
    forward = 5
    draft = 6
    sample = 7
    connector = 8
    update = 9
    output = 10


class EventKind(IntEnum):
    """What happened. "Stuck" is no event: it is an open interval in SQL, plus the heartbeat.

    `lookup_pending` and `lookup_answered` are told when a KV connector's answer changes.
    `first_token` is a request's first output; `caught_up` its first output after each resumption,
    which ends the recomputation. `tokens_appended` are outputs that were not sampled.
    """

    arrived = 1
    input_added = 2
    admitted = 3
    resumed = 4
    skipped = 5
    preempted = 6
    first_token = 7
    turn_finished = 8
    client_gone = 9
    finished = 10
    caught_up = 11
    drafts_proposed = 12
    drafts_verified = 13
    unblocked = 14
    tokens_appended = 15
    grammar_started = 20
    grammar_ready = 21
    grammar_failed = 22
    lookup_pending = 30
    load_queued = 31
    load_started = 32
    load_finished = 33
    load_failed = 34
    load_timed_out = 35
    save_started = 36
    save_finished = 37
    save_failed = 38
    ack_wait_started = 39
    ack_received = 40
    ack_timed_out = 41
    lease_expired = 42
    lookup_answered = 43
    item_scheduled = 50
    item_evicted = 51
    engine_starting = 60
    engine_started = 61
    engine_failed = 62
    engine_stopped = 63
    engine_died = 64
    config_changed = 65
    paused = 66
    unpaused = 67
    prefix_cache_reset = 68
    encoder_cache_reset = 69
    throttled = 70
    records_dropped = 71
    recorder_degraded = 72


VOCABULARIES: dict[str, type[IntEnum]] = {
    "skip_reason": SkipReason,
    "stop_reason": StopReason,
    "zero_reason": ZeroReason,
    "wait_reason": WaitReason,
    "preemption_cause": PreemptionCause,
    "victim_rule": VictimRule,
    "finish_reason": FinishReason,
    "phase": Phase,
    "event_kind": EventKind,
}
"""Name of each closed set in the log's lookup table `vocabulary(enum, code, name)`."""
