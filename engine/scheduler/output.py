"""What passes between scheduler and runner: a delta each way.

The scheduler sends a request's whole data once (`NewRequestData`) and only changes afterwards
(`CachedRequestData`); the runner keeps the rest. A preempted request leaves the runner's batch;
when it comes back, all its tokens and its whole block table are sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.kv_cache import BlockIds
from engine.sampling import SamplingParams
from telemetry.vocabulary import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequestData:
    """A request that the runner has never seen.

    `block_ids` is its whole block table, `num_computed_tokens` the position of its first token in
    this step (a prefix hit starts above 0).
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling: SamplingParams
    block_ids: BlockIds
    num_computed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRequestData:
    """Changes of a request that the runner knows.

    For a running request `new_block_ids` are appended to its block table and `all_token_ids` is
    None. For a resumed one (`resumed`) they replace it, and `all_token_ids` is prompt and outputs.
    """

    request_id: str
    new_block_ids: BlockIds | None
    num_computed_tokens: int
    num_output_tokens: int
    resumed: bool = False
    all_token_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOutput:
    """The scheduler's decisions for one step, in scheduling order.

    `num_scheduled_tokens` maps each scheduled request to its tokens: running requests first, in
    the order of the running list, then admissions. `finished_req_ids` have ended since the last
    step; `preempted_req_ids` lost their blocks since then. Both leave the runner's batch.
    """

    step: int
    scheduled_new_reqs: tuple[NewRequestData, ...] = ()
    scheduled_cached_reqs: tuple[CachedRequestData, ...] = ()
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    total_num_scheduled_tokens: int = 0
    finished_req_ids: frozenset[str] = frozenset()
    preempted_req_ids: frozenset[str] = frozenset()
    preempted_in_order: tuple[str, ...] = ()
    """Those of them that this step preempted, in order."""
    scheduled_spec_decode_tokens: dict[str, list[int]] = field(default_factory=dict)
    """Draft tokens among the scheduled ones; -1 is a placeholder."""
    scheduled_encoder_inputs: dict[str, list[int]] = field(default_factory=dict)
    """Indices of the encoder items to run in this step."""
    free_encoder_mm_hashes: tuple[str, ...] = ()
    """Keys of encoder outputs that the runner may drop."""
    num_external_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens that a KV connector brings in this step, by admission."""
    kv_loads_started: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Asynchronous loads: computed tokens once they are done, local hit, tokens from outside."""
    num_prefix_hit_tokens: dict[str, int | None] = field(default_factory=dict)
    """Local cache hit of each admission; None for one that held blocks already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRunnerOutput:
    """What a step's execution gave back.

    `sampled_token_ids` has an entry for each scheduled request that reached its newest token;
    requests in mid-prefill have none. `finished_recving` and `finished_sending` are requests whose
    KV has been loaded or sent, `failed_recving` and `invalid_block_ids` what failed to load. Times
    are of this step; None where the runner has no such phase.
    """

    sampled_token_ids: dict[str, list[int]] = field(default_factory=dict)
    finished_recving: frozenset[str] = frozenset()
    finished_sending: frozenset[str] = frozenset()
    failed_recving: frozenset[str] = frozenset()
    invalid_block_ids: frozenset[int] = frozenset()
    inputs_ns: int | None = None
    forward_ns: int | None = None
    sample_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """New tokens of a request after a step, and its end if it has come.

    With `is_turn` only a session's turn has ended.

    `error` says why a request ended with `FinishReason.error` or `refused`.
    """

    request_id: str
    new_token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    error: str | None = None
    is_turn: bool = False
