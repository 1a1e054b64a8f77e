"""A recorded load: who asked for how much and when, under which settings, on how fast a machine.

A `Workload` is all that a replay under other settings is made of. It is a value: whoever wants
another one asks `edits`. Times are ns since the workload's start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from diagnose.replay.measures import Measures
from diagnose.replay.step_times import StepTimes
from diagnose.replay.tokens import MadeUpTokens
from engine.config import EngineConfig
from engine.encoder_cache import EncoderItem

ClientKind = Literal["open", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """When requests arrive: when they did (`open`), or when an answer has come (`closed`).

    `num_in_flight` clients wait for their answers, each `think_ns` before it asks again; it is None
    for an open loop. `reason` says what in the record speaks for it.
    """

    kind: ClientKind
    num_in_flight: int | None = None
    think_ns: tuple[int, ...] = (0,)
    """Recorded pauses between an answer and the next request, to draw from."""
    reason: str = "chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a KV connector had for a request once it had lost its progress so often.

    That is KV up to the token `reach` (0: none), loaded beside the steps or in one of them.
    """

    num_preemptions: int
    reach: int
    is_async: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """What a KV connector did for a request, as it was recorded.

    It said so `lookup_ns` after it was first asked; loading took `load_ns` (each load in turn;
    None: it failed), sending after the end `ack_ns`, saving (each save in turn) `save_ns`.
    """

    answers: tuple[Answer, ...] = ()
    lookup_ns: int = 0
    load_ns: tuple[int | None, ...] = ()
    ack_ns: int | None = None
    save_ns: tuple[int, ...] = ()

    def answer(self, num_preemptions: int) -> Answer | None:
        """Returns what it had after so many preemptions; None where it never had any."""
        known = [each for each in self.answers if each.num_preemptions <= num_preemptions]
        return known[-1] if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRequest:
    """A request of the load, and all that a replay must know of it.

    `num_output_tokens` is when it ends. For one that had not ended in the record (`is_finished` is
    False) it is what it might still have been given. `num_outputs_before` are outputs that it had
    when the workload begins; `was_running` says that it held a slot then.
    """

    number: int
    arrived_ns: int
    num_prompt_tokens: int
    num_output_tokens: int
    is_finished: bool = True
    priority: int = 0
    received_before_ns: int = 0
    """How long before its arrival it was received; its sort key among equal priorities."""
    off_edge_ns: int = 0
    """How much later it is let come, to be taken in behind the same step; below 0: earlier."""
    adapter: str | None = None
    salt_key: str | None = None
    reads_cache: bool = True
    prefix_request: int | None = None
    num_shared_tokens: int = 0
    aborted_after_ns: int | None = None
    """Age at which its client gave it up; None if it did not."""
    blocked_ns: int = 0
    """How long it waited for a grammar, from its arrival."""
    transfers: Transfers = field(default_factory=Transfers)
    drafts_placed: tuple[int, ...] = ()
    drafts_accepted: tuple[int, ...] = ()
    encoder_items: tuple[EncoderItem, ...] = ()
    request_id: str | None = None
    num_outputs_before: int = 0
    was_running: bool = False

    @property
    def num_tokens(self) -> int:
        """Its prompt and all its outputs."""
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What an operator did: `pause` (with the new state) or `reset` of the prefix cache."""

    ts_ns: int
    kind: Literal["pause", "reset", "reset_running"]
    state: str = "UNPAUSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRecord:
    """How well drafts did: drafts a verification, and how likely the next one is right.

    `acceptance` is None where nothing was verified.
    """

    num_speculative_tokens: int = 0
    acceptance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A stretch of an engine's record, made ready to be scheduled again.

    `requests` are in the order of their arrival. `acts` are an operator's: pauses and resets.
    `recorded` is what was measured then; None for a quantity that the log does not tell. `notes`
    say what the record leaves open, in sentences for people.
    """

    engine: int
    config: EngineConfig
    recorded_config: EngineConfig
    requests: tuple[WorkRequest, ...]
    clients: Clients
    step_times: StepTimes
    tokens: MadeUpTokens
    start_ts: int
    duration_ns: int
    recorded: Measures
    acts: tuple[Act, ...] = ()
    latency_factor: float = 1.0
    """How much longer the KV connector takes than it did."""
    rate_factor: float = 1.0
    """How much faster requests come than they did."""
    drafts: DraftRecord = field(default_factory=DraftRecord)
    notes: tuple[str, ...] = ()

    @property
    def num_requests(self) -> int:
        """Requests that are replayed."""
        return len(self.requests)
