"""What passes between the API process and the engine process: plain frozen data, pickled.

Moments are monotonic nanoseconds: on one machine the two processes share that clock, and the engine
turns them into the run's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.config import EngineConfig
from engine.lora.module_spec import AdapterModule
from engine.lora.store import AdapterVersion
from engine.sampling import SamplingParams
from engine.scheduler import PauseState
from engine.scheduler.integrity import IntegrityReport
from engine.scheduler.output import RequestOutput
from engine.stats import StatsSnapshot
from telemetry.vocabulary import FinishReason

if TYPE_CHECKING:
    from engine.lora.reading import LoadedAdapter

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """To the engine: run this; or, with `rejection`, record that there was no room, and why."""

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
    rejection: str | None = None


class Question(Generic[Answer_co]):
    """What the engine does and answers between two steps; the type is its answer's."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AskStats(Question[StatsSnapshot]):
    """Send your numbers."""


@dataclass(frozen=True, slots=True)
class AskIntegrity(Question["CheckedBooks"]):
    """Check your books, now."""


@dataclass(frozen=True, slots=True)
class SetPause(Question[None]):
    """Pause or go on."""

    pause: PauseState


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPrefixCache(Question[bool]):
    """Empty the prefix cache; the answer is whether that could be done."""

    reset_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortRequests(Question[int]):
    """End these, as far as they have not ended; the answer is how many that were.

    Sent without an `Ask` nobody is answered, and nobody is told of their ends.
    """

    request_ids: tuple[str, ...]
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class AdapterRefused:
    """Why an adapter was not loaded, or not unloaded."""

    error: str


@dataclass(frozen=True, slots=True)
class LoadAdapter(Question["AdapterVersion | AdapterRefused"]):
    """Read an adapter, and let its name stand for it. The answer comes once it is read."""

    module: AdapterModule


@dataclass(frozen=True, slots=True)
class UnloadAdapter(Question["AdapterRefused | None"]):
    """Forget an adapter's name; requests that run with it go on."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdapterRead:
    """To the step loop, from the thread that read an adapter.

    It was read to answer a `ticket`, or for requests that wait for `adapter`.
    """

    ticket: int | None
    adapter: str | None
    loaded: LoadedAdapter | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """To the engine: a question whose answer somebody waits for."""

    ticket: int
    question: Question[Any]


@dataclass(frozen=True, slots=True)
class GrammarCompiled:
    """To the engine, from a thread of its own: a grammar is there, or never will be."""


@dataclass(frozen=True, slots=True)
class TransferEnded:
    """To the step loop, from a thread that moved KV: there is something to report."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """To the engine: end everything and go."""

    why: str


ToEngine = (
    AddRequest | AbortRequests | Ask | AdapterRead | GrammarCompiled | TransferEnded | Shutdown
)


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
    adapters: tuple[AdapterVersion, ...] = ()
    device_notes: Mapping[str, str] = field(default_factory=dict)
    """What a person should know about the device, by what it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailed:
    """From the engine: it cannot start, or cannot go on.

    `is_usage` says that a person's setting is to blame.
    """

    error: str
    is_usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """From the engine, after each step: the new tokens and ends.

    `made_progress`: something was scheduled, or a pause is why not.
    """

    step: int
    made_progress: bool
    results: tuple[RequestOutput, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """From the engine, between two steps: requests that it did not take, or ended when told to."""

    results: tuple[RequestOutput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """From the engine: what it says to the question of an `Ask`."""

    ticket: int
    answer: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBooks:
    """Whether the engine's books are right, and for how long the check stopped the step loop.

    Without a report the books could not even be read; `error` says why.
    """

    duration_ns: int
    report: IntegrityReport | None
    error: str | None = None


FromEngine = EngineReady | EngineFailed | StepDone | Ended | Answered
