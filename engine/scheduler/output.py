"""What passes between scheduler and runner: a delta each way.

The scheduler sends a request's whole data once (`NewRequestData`) and only changes afterwards
(`CachedRequestData`); the runner keeps the rest. A preempted request leaves the runner's batch;
when it comes back, all its tokens and its whole block table are sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from itertools import chain
from typing import overload

import numpy as np

from engine.connectors.metadata import ECConnectorMetadata, KVConnectorMetadata
from engine.kv_cache import BlockIds
from engine.sampling import SamplingParams
from engine.scheduler.decode_order import DecodeOrder, Int32s, Int64s
from telemetry.vocabulary import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequestData:
    """A request that the runner has never seen.

    `block_ids` is its whole block table, `num_computed_tokens` the position of its first token in
    this step (a prefix hit starts above 0). `output_token_ids` are outputs that are known before
    any is sampled. A session comes as new again with each turn: its prompt is then all that was
    said before and the new piece, and what the runner knew of it is replaced.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    sampling: SamplingParams
    block_ids: BlockIds
    num_computed_tokens: int
    output_token_ids: Sequence[int] = ()
    adapter: str | None = None
    """The LoRA adapter that it is to be computed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRequestData:
    """Changes of a request that the runner knows.

    For a running request `new_block_ids` are appended to its block table and `all_token_ids` is
    None. For a resumed one (`resumed`) they replace it, and `all_token_ids` is prompt and outputs.
    `new_token_ids` are outputs that became known without being sampled, to be appended first.
    """

    request_id: str
    new_block_ids: BlockIds | None
    num_computed_tokens: int
    num_output_tokens: int
    resumed: bool = False
    all_token_ids: Sequence[int] | None = None
    new_token_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """The decoding requests of a step that are told as columns: one token each, in this order.

    They come first in the step, as they do in the running list. `new_blocks` has the block that was
    added to a row's table, for the rows that got one.
    """

    order: DecodeOrder
    num_scheduled: int
    num_taken: int
    """Both count steps, up to this one: see `decode_rows`."""
    new_blocks: dict[int, int]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def has_steps_in_flight(self) -> bool:
        """Whether outputs of steps before this one are still on their way."""
        return self.num_scheduled > self.num_taken

    @property
    def request_ids(self) -> list[str]:
        """The requests, by row."""
        return self.order.request_ids

    @property
    def slots(self) -> Int64s:
        """A number of each request that stays the same while it is told as a column, `[len]`."""
        return self.order.slot

    @property
    def num_computed_tokens(self) -> Int64s:
        """Positions of the requests' tokens in this step, `[len]`."""
        return self.order.offset + self.num_scheduled

    @property
    def num_tokens(self) -> Int64s:
        """The requests' known tokens, `[len]`."""
        return self.order.offset + (self.num_taken + 1)

    def blocks_of(self, row: int) -> BlockIds:
        """Returns what was added to a row's block table."""
        block = self.new_blocks.get(row)
        return () if block is None else ([block],)

    def without(self, row: int, order: DecodeOrder) -> DecodeBatch:
        """Returns the batch without a row, which `order` does not have any more."""
        blocks = self.new_blocks.items()
        others = {each - (each > row): block for each, block in blocks if each != row}
        return replace(self, order=order, new_blocks=others)

    def as_cached_requests(self) -> Iterator[CachedRequestData]:
        """Yields the same told one by one."""
        computed, known = self.num_computed_tokens.tolist(), self.num_tokens.tolist()
        for row, request in enumerate(self.order.requests):
            yield CachedRequestData(
                request_id=request.request_id,
                new_block_ids=self.blocks_of(row) or None,
                num_computed_tokens=computed[row],
                num_output_tokens=known[row] - request.num_prompt_tokens,
            )


@dataclass(kw_only=True, eq=False)
class SchedulerOutput:
    """The scheduler's decisions for one step, in scheduling order. Nobody changes it afterwards.

    `decodes` are the first of the step's requests, as columns, where there are any; the fields
    that begin with `other_` hold the rest. `num_scheduled_tokens` and `scheduled_cached_reqs` tell
    of both, and are made when somebody asks. `finished_req_ids` have ended since the last step;
    `preempted_req_ids` lost their blocks since then. Both leave the runner's batch.
    """

    step: int
    decodes: DecodeBatch | None = None
    other_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    other_cached_reqs: tuple[CachedRequestData, ...] = ()
    scheduled_new_reqs: tuple[NewRequestData, ...] = ()
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
    has_structured_output_requests: bool = False
    """Whether a grammar constrains the output of a scheduled request."""
    pending_structured_output_tokens: bool = False
    """Whether the last token of one of them is still on its way: the bitmask can be filled only
    after the update that brings it."""
    structured_output_rows: dict[str, int] = field(default_factory=dict)
    """Bitmask rows that each of them needs: one, and one for each of its drafts."""
    kv_connector_metadata: KVConnectorMetadata | None = None
    """KV transfers that begin with this step; None without a connector."""
    ec_connector_metadata: ECConnectorMetadata | None = None
    """Encoder outputs that are sent for with this step; None without a connector."""

    @cached_property
    def num_scheduled_tokens(self) -> dict[str, int]:
        """Tokens of each scheduled request: running ones first, in their order, then admissions."""
        decodes = {} if self.decodes is None else dict.fromkeys(self.decodes.request_ids, 1)
        return decodes | self.other_scheduled_tokens

    @cached_property
    def scheduled_cached_reqs(self) -> tuple[CachedRequestData, ...]:
        """Changes of the requests that the runner knows, in scheduling order."""
        decodes = () if self.decodes is None else tuple(self.decodes.as_cached_requests())
        return decodes + self.other_cached_reqs


@dataclass(frozen=True, slots=True, kw_only=True)
class KVSaves:
    """Requests whose KV is being stored elsewhere: since this step, up to it, or not after all."""

    started: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()


class GraphMode(IntEnum):
    """How a step's forward pass was launched, as the record numbers it."""

    EAGER = 0
    PIECEWISE = 1
    FULL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """How likely a sampled token was, and which were the likeliest, best first (natural logs)."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """(token id, log probability) of the likeliest, as many as were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRunnerOutput:
    """What a step's execution gave back.

    `sampled_token_ids` has an entry for each scheduled request that reached its newest token;
    requests in mid-prefill have none. For the step's `decodes` the tokens may be given as a column
    instead, `decode_token_ids` `[len(decodes)]`. `finished_recving` and `finished_sending` are
    requests whose KV has been loaded or sent, `failed_recving` and `invalid_block_ids` what failed
    to load. `finished_ec_recving` and `failed_ec_recving` are keys of encoder outputs that have
    come from elsewhere, or are not going to. `kv_saves` is only written down. Times are of this
    step; None where the runner has no such phase.
    """

    sampled_token_ids: dict[str, list[int]] = field(default_factory=dict)
    decode_token_ids: Int32s | None = None
    finished_recving: frozenset[str] = frozenset()
    finished_sending: frozenset[str] = frozenset()
    failed_recving: frozenset[str] = frozenset()
    invalid_block_ids: frozenset[int] = frozenset()
    finished_ec_recving: frozenset[str] = frozenset()
    failed_ec_recving: frozenset[str] = frozenset()
    kv_saves: KVSaves | None = None
    recving_errors: dict[str, str] = field(default_factory=dict)
    """Why loads failed, as far as it is known; only written down, for whoever runs the engine."""
    draft_token_ids: dict[str, list[int]] = field(default_factory=dict)
    """Guesses at the next tokens of requests that have been sampled, for the next step."""
    logprobs: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    """For requests that want them: one for each sampled token."""
    graph_mode: GraphMode | None = None
    bitmask_ns: int | None = None
    inputs_ns: int | None = None
    forward_ns: int | None = None
    draft_ns: int | None = None
    sample_ns: int | None = None
    connector_ns: int | None = None

    def all_sampled(self, decodes: DecodeBatch) -> dict[str, list[int]]:
        """Returns the tokens of all requests one by one, those given as a column included."""
        if self.decode_token_ids is None:
            return self.sampled_token_ids
        pairs = zip(decodes.request_ids, self.decode_token_ids.tolist(), strict=True)
        return {name: [token_id] for name, token_id in pairs} | self.sampled_token_ids

    def decode_column(self, decodes: DecodeBatch) -> Int32s:
        """Returns the tokens of a step's `decodes` as a column; 0 where a request has none."""
        if self.decode_token_ids is not None:
            return self.decode_token_ids
        sampled = self.sampled_token_ids
        token_ids = (sampled.get(name) or [0] for name in decodes.request_ids)
        return np.fromiter((ids[0] for ids in token_ids), np.int32, len(decodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """New tokens of a request after a step, and its end if it has come.

    With `is_turn` only a session's turn has ended. `logprobs` has one for each new token, where the
    request wants them.

    `error` says why a request ended with `FinishReason.error` or `refused`; with `blames_client`
    the request itself was wrong, which only the engine could find out.
    """

    request_id: str
    new_token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    error: str | None = None
    blames_client: bool = False
    is_turn: bool = False
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodeOutputs:
    """New tokens of a step's `decodes`, as a column.

    `told` has the results, by row, of those about whom there is more to say: who has ended, who
    has changed since the step was decided; None for who has no result.
    """

    batch: DecodeBatch
    token_ids: Int32s
    told: dict[int, RequestOutput | None]

    def __len__(self) -> int:
        return len(self.token_ids) - sum(result is None for result in self.told.values())

    def __iter__(self) -> Iterator[RequestOutput]:
        pairs = zip(self.batch.request_ids, self.token_ids.tolist(), strict=True)
        for row, (request_id, token_id) in enumerate(pairs):
            if row not in self.told:
                yield RequestOutput(request_id=request_id, new_token_ids=(token_id,))
            elif (result := self.told[row]) is not None:
                yield result


class StepOutputs(Sequence[RequestOutput]):
    """What an update brings: new tokens and ends, in scheduling order, errors last.

    `decodes` are columns, `others` are told one by one; `logprobs` lie beside both, those of tokens
    that a request did not take included. Whoever goes through the sequence gets a `RequestOutput`
    of each, with its own.
    """

    __slots__ = ("decodes", "logprobs", "others")

    def __init__(self, others: list[RequestOutput], decodes: DecodeOutputs | None = None) -> None:
        self.others = others
        self.decodes = decodes
        self.logprobs: Mapping[str, Sequence[TokenLogprobs]] = {}

    def __len__(self) -> int:
        return len(self.others) + (0 if self.decodes is None else len(self.decodes))

    def __iter__(self) -> Iterator[RequestOutput]:
        results = self.others if self.decodes is None else chain(self.decodes, self.others)
        return map(self._with_logprobs, results) if self.logprobs else iter(results)

    def _with_logprobs(self, result: RequestOutput) -> RequestOutput:
        found = self.logprobs.get(result.request_id)
        if found is None or not result.new_token_ids:
            return result
        return replace(result, logprobs=tuple(found[: len(result.new_token_ids)]))

    @overload
    def __getitem__(self, index: int) -> RequestOutput: ...
    @overload
    def __getitem__(self, index: slice) -> list[RequestOutput]: ...
    def __getitem__(self, index: int | slice) -> RequestOutput | list[RequestOutput]:
        return list(self)[index]
