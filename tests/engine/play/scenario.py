"""What a random run consists of, as plain data; `draws` makes it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from engine.config import EngineConfig
from engine.encoder_cache import EncoderItem

HORIZON = 24
"""Steps in which something may still happen from outside."""


def terse(value: object) -> str:
    """Returns how a dataclass is made, without the fields that are as by default."""
    if not is_dataclass(value):
        return repr(value)
    shown = (
        f"{f.name}={terse(own)}"
        for f in fields(value)
        if (own := getattr(value, f.name)) != f.default
        and (f.default_factory is MISSING or own != f.default_factory())
    )
    return f"{type(value).__name__}({', '.join(shown)})"


class Terse:
    """Shows what differs from the defaults, so that a shrunk example can be read."""

    __slots__ = ()

    def __repr__(self) -> str:
        return terse(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Shows the same to hypothesis, which prints dataclasses in its own way."""
        printer.text(terse(self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Transfer(Terse):
    """What a connector has of a request, and how its load and its sending go.

    `fails_at` is the block that fails to load, -1 all of them; a load fails once.
    """

    num_tokens: int = 0
    is_async: bool = False
    num_unknown: int = 0
    load_steps: int = 1
    fails_at: int | None = None
    send_steps: int | None = None
    """Steps for which its blocks are kept after its end; None: they are not sent."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RequestPlan(Terse):
    """A request, and all that happens to it outside the scheduler."""

    arrives: int
    num_shared: int
    """Prompt tokens that all requests have in common."""
    num_own: int
    max_tokens: int
    priority: int = 0
    arrival_time: float = 0.0
    eos_at: int | None = None
    """Output that is the end-of-sequence token; `stops_at` is one of the request's own."""
    stops_at: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    adapter: str | None = None
    salt: str | None = None
    reads_cache: bool = True
    grammar: tuple[int, bool] | None = None
    """Steps until its grammar is decided, and whether it compiles."""
    pieces: tuple[tuple[int, int, int], ...] | None = None
    """A session's further input: steps after the arrival, tokens, outputs; then it is closed."""
    items: tuple[EncoderItem, ...] = ()
    drafts: tuple[tuple[int, int], ...] = ((0, 0),)
    """Drafts proposed, and how many of them are right; cycled."""
    transfer: Transfer = Transfer()

    @property
    def num_prompt_tokens(self) -> int:
        return self.num_shared + self.num_own


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something done to the engine before a step, or while it executes."""

    step: int
    in_mid_step: bool
    kind: str
    target: int


@dataclass(frozen=True, slots=True, repr=False)
class Scenario(Terse):
    """A whole run."""

    config: EngineConfig
    requests: tuple[RequestPlan, ...]
    disturbances: tuple[Disturbance, ...]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Shows the requests and the disturbances a line each."""
        printer.text(f"Scenario(\n    {terse(self.config)},\n    (")
        for plan in (*self.requests, *self.disturbances):
            printer.text(f"\n        {plan!r},")
        printer.text("\n    ))")

    @property
    def has_holders(self) -> bool:
        """Whether somebody may wait for blocks while holding some: these can block each other."""
        return self.config.kv_connector is not None or any(
            plan.pieces is not None for plan in self.requests
        )
