"""A request as the scheduler sees it: its tokens, its progress, its place in life."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from engine.encoder_cache import EncoderItem
from engine.sampling import SamplingParams
from engine.session import Session
from telemetry.vocabulary import FinishReason, SkipReason


class RequestStatus(Enum):
    """Where a request stands. What a waiting one waits for is in `Request.blocked_by`."""

    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED = auto()


@dataclass(slots=True, kw_only=True)
class RequestTimes:
    """Moments of a request's life on the run's clock (ns since the Unix epoch)."""

    received: int | None = None
    tokenized: int | None = None
    arrived: int = 0
    admitted: int | None = None
    first_token: int | None = None
    last_token: int | None = None
    preempted: int | None = None
    preempted_ns: int = 0
    max_itl_ns: int | None = None


class StaleOutput(Enum):
    """What becomes of a token that was on its way when its request lost its progress."""

    DELIVERED = auto()
    DROPPED = auto()


class Grammar(Protocol):
    """A compiled grammar, as far as the scheduler asks it."""

    @property
    def key(self) -> str:
        """What says which grammars are equal."""

    def accepted_prefix(self, token_ids: list[int]) -> list[int]:
        """Returns the drafts up to the first one that the grammar refuses."""


@dataclass(slots=True, eq=False)
class Request:
    """One request, from arrival to its one end.

    `token_ids` holds the prompt followed by the outputs. The scheduler owns and mutates all of it;
    everything that can be derived is a property.

    Invariants:
        `0 <= num_computed_tokens <= num_tokens + num_output_placeholders`;
        `finish_reason is not None` exactly when `status` is FINISHED.
    """

    request_id: str
    number: int
    """Counted per engine start; what the record calls `request`."""
    prompt_token_ids: Sequence[int]
    sampling: SamplingParams
    arrival_time: float = 0.0
    """Sort key after priority, in seconds."""
    priority: int = 0
    """Smaller is more urgent."""
    eos_token_id: int | None = None
    reads_prefix_cache: bool = True
    adapter: str | None = None
    adapter_key: str | None = None
    """What its adapter's KV is told apart by, where the name alone does not say which weights."""
    cache_salt: str | None = None
    grammar: Grammar | None = None
    encoder_items: tuple[EncoderItem, ...] = ()
    session: Session | None = None
    """Set for a streaming session; it waits for more input when a turn ends."""
    trace_id: str | None = None
    parent_span_id: str | None = None
    trace_sampled: bool | None = None

    status: RequestStatus = RequestStatus.WAITING
    token_ids: array[int] = field(init=False)
    num_prompt_tokens: int = field(init=False)
    num_computed_tokens: int = 0
    draft_token_ids: list[int] = field(default_factory=list)
    """Guesses at its next tokens, to be scheduled behind the known ones."""
    untold_token_ids: list[int] = field(default_factory=list)
    """Outputs that became known without the runner: it is told with the next grant."""
    num_output_placeholders: int = 0
    """Outputs that steps in flight are going to bring (asynchronous scheduling)."""
    in_flight: dict[int, int] = field(default_factory=dict)
    """Tokens of steps that are scheduled and not taken in, by step."""
    stale: dict[int, StaleOutput] = field(default_factory=dict)
    """What becomes of the output of steps that were in flight when it lost its progress."""
    next_decode_step: int = 0
    """First step in which its last decode has left the pipeline."""
    keys_encoded_here: set[str] = field(default_factory=set)
    """Encoder items that could not be brought from elsewhere."""
    is_loading: bool = False
    """Holds blocks that an asynchronous KV load fills."""
    has_loaded: bool = False
    """The load has been received, and the request has not been looked at since."""
    slot: int | None = None
    """Its place on the array path; None while it is an ordinary request."""
    is_prefill_chunk: bool = False
    """Whether its last grant left known tokens to compute."""
    high_water_mark: int = 0
    """Most tokens it ever had computed; positions below it are computed again after a loss."""
    num_preemptions: int = 0
    is_catching_up: bool = False
    """Resumed after a preemption and without an output since."""
    blocked_by: SkipReason | None = None
    """What it waits for outside the scheduler; None once it is ready."""
    skipped_for: SkipReason | None = None
    """Why it was last set aside; stays until it is admitted."""
    finish_reason: FinishReason | None = None
    drafts_placed: list[int] = field(default_factory=list)
    drafts_accepted: list[int] = field(default_factory=list)
    times: RequestTimes = field(default_factory=RequestTimes)

    def __post_init__(self) -> None:
        self.token_ids = array("i", self.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        """Known tokens: prompt and outputs."""
        return len(self.token_ids)

    def take_untold_tokens(self) -> tuple[int, ...]:
        """Returns the outputs that the runner does not know, for it to be told now."""
        untold = tuple(self.untold_token_ids)
        self.untold_token_ids.clear()
        return untold

    @property
    def num_in_flight_tokens(self) -> int:
        """Computed tokens that are on their way."""
        return sum(self.in_flight.values())

    @property
    def num_tokens_with_drafts(self) -> int:
        """Known tokens, drafts, and outputs on their way."""
        return len(self.token_ids) + len(self.draft_token_ids) + self.num_output_placeholders

    @property
    def num_output_tokens(self) -> int:
        """Outputs so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> array[int]:
        """A copy of the outputs so far."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def urgency(self) -> tuple[int, float]:
        """Sort key of the priority policy: smaller goes first, the largest is the victim."""
        return (self.priority, self.arrival_time)

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.status is RequestStatus.FINISHED
