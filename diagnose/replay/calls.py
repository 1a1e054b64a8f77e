"""The calls that a recorded scheduler was driven by, as values.

Requests go by their numbers. `Call` is the union; `run` matches it to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from engine.scheduler import PauseState
from telemetry.vocabulary import FinishReason, SkipReason


@dataclass(frozen=True, slots=True)
class AddRequest:
    """A request was queued."""

    request: int


@dataclass(frozen=True, slots=True)
class EndRequest:
    """A request was ended from outside."""

    request: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Unblock:
    """What a request waited for came, or was found never to come."""

    request: int
    failure: SkipReason | None


@dataclass(frozen=True, slots=True)
class AppendTokens:
    """A request was given outputs that were not sampled."""

    request: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TakeInput:
    """A session was given its next input: now, or, `queued`, at some time during its turn."""

    request: int
    text: int
    """Number of the text that begins with it."""
    queued: bool = False


@dataclass(frozen=True, slots=True)
class CloseSession:
    """A session was told that no input follows; it ends with the turn."""

    request: int


@dataclass(frozen=True, slots=True)
class ProposeDrafts:
    """Requests were given drafts: how many, by request."""

    num_drafts: dict[int, int]


@dataclass(frozen=True, slots=True)
class SetPause:
    """An operator paused or unpaused the engine."""

    pause: PauseState


@dataclass(frozen=True, slots=True)
class ResetPrefixCache:
    """Somebody emptied the prefix cache, or tried to."""

    reset_running: bool


@dataclass(frozen=True, slots=True)
class ResetEncoderCache:
    """Somebody emptied the encoder cache."""


@dataclass(frozen=True, slots=True)
class GiveUpLoad:
    """A load took too long."""

    request: int


@dataclass(frozen=True, slots=True)
class ExpireLease:
    """Blocks that a transfer might still need were taken back."""

    request: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A step was decided; `is_throttled`: prefills were asked to stand back."""

    step: int
    is_throttled: bool = False


@dataclass(slots=True, kw_only=True)
class TakeStep:
    """A step was taken in, with what its execution brought.

    `num_accepted` says how many of a request's drafts were right. `invalid` are the places of
    blocks that failed to load in a request's first block table, `failed` the requests of which all
    did. Encoder items go by their keys.
    """

    step: int
    num_accepted: dict[int, int] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    invalid: dict[int, list[int]] = field(default_factory=dict)
    received_items: list[str] = field(default_factory=list)
    failed_items: list[str] = field(default_factory=list)


Call: TypeAlias = (
    AddRequest
    | EndRequest
    | Unblock
    | AppendTokens
    | TakeInput
    | CloseSession
    | ProposeDrafts
    | SetPause
    | ResetPrefixCache
    | ResetEncoderCache
    | GiveUpLoad
    | ExpireLease
    | Schedule
    | TakeStep
)
