"""What passes between the API process and the engine process: plain frozen data, pickled.

Moments are monotonic nanoseconds: on one machine the two processes share that clock, and the engine
turns them into the run's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.sampling import SamplingParams
from engine.scheduler.integrity import IntegrityReport
from engine.scheduler.output import RequestOutput
from engine.stats import StatsSnapshot
from telemetry.vocabulary import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """To the engine: run this."""

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    priority: int
    adapter: str | None
    received_ns: int
    tokenized_ns: int | None
    trace_id: str | None
    parent_span_id: str | None
    trace_sampled: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRequests:
    """To the engine: end these."""

    request_ids: tuple[str, ...]
    reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStats:
    """To the engine: send your numbers."""

    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskIntegrity:
    """To the engine: check your books, now."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """To the engine: end everything and go."""

    why: str


ToEngine = AddRequest | AbortRequests | AskStats | AskIntegrity | Shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReady:
    """From the engine: requests may come.

    `model_directory` is where the tokenizer lies; None for a runner without a model. `pid` and
    `started_ts`, on the run's clock, tell it from every other engine.
    """

    config: EngineConfig
    model_directory: str | None
    vocab_size: int
    device: str
    dtype: str
    pid: int
    started_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailed:
    """From the engine: it cannot start, or cannot go on.

    `is_usage` says that a person's setting is to blame.
    """

    error: str
    is_usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """From the engine, after each step: the new tokens and ends."""

    step: int
    num_scheduled_tokens: int
    results: tuple[RequestOutput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """From the engine: a request that it does not take."""

    result: RequestOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsReply:
    """From the engine: its numbers."""

    ticket: int
    stats: StatsSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrityReply:
    """From the engine: whether its books are right, and for how long that stopped the step loop.

    Without a report the books could not even be read; `error` says why.
    """

    ticket: int
    duration_ns: int
    report: IntegrityReport | None
    error: str | None = None


FromEngine = EngineReady | EngineFailed | StepDone | Refused | StatsReply | IntegrityReply
