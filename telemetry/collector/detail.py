"""How much of a record the step log keeps.

    steps          steps, arrivals and finishes, and of the events: the life of each request
                   (admitted, preempted, resumed, first token), failures, and the engine's own
    transitions    all events
    full           all events, and a row a request a step (`step_requests`)
    sampled=N      all events, and the rows of every Nth step: those whose number N divides

Every account balances at every detail: what `steps` leaves out is why a request was set aside, and
what its transfers, grammars, encoder items and drafts did meanwhile. Replay needs `transitions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from telemetry.errors import StepscopeError
from telemetry.vocabulary import EventKind

Detail: TypeAlias = str
"""A detail as it is written: see `read_detail`."""

DEFAULT_DETAIL: Detail = "transitions"
VARIABLE = "STEPSCOPE_DETAIL"
"""The environment variable that holds where no flag does."""
CHOICES = "steps|transitions|full|sampled=N"

_SAMPLED = re.compile(r"sampled=([1-9]\d{0,8})")
_ONLY_WITH_TRANSITIONS = frozenset(
    {
        *(EventKind.skipped, EventKind.unblocked, EventKind.tokens_appended),
        *(EventKind.drafts_proposed, EventKind.drafts_verified),
        *(EventKind.grammar_started, EventKind.grammar_ready),
        *(EventKind.lookup_pending, EventKind.lookup_answered),
        *(EventKind.load_queued, EventKind.load_started, EventKind.load_finished),
        *(EventKind.save_started, EventKind.save_finished),
        *(EventKind.ack_wait_started, EventKind.ack_received),
        *(EventKind.item_scheduled, EventKind.item_evicted),
    }
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a detail keeps."""

    detail: Detail
    dense_every: int | None
    """Dense rows of each step whose number this divides are kept; None: of none."""
    dropped_kinds: frozenset[int] = frozenset()
    """Kinds of events that are not kept."""

    @property
    def has_dense(self) -> bool:
        """Whether dense rows of any step are kept."""
        return self.dense_every is not None


def read_detail(detail: Detail) -> Kept:
    """Returns what is kept at a detail.

    Raises:
        StepscopeError: There is no such detail.
    """
    match detail:
        case "steps":
            return Kept(detail, None, frozenset(map(int, _ONLY_WITH_TRANSITIONS)))
        case "transitions":
            return Kept(detail, None)
        case "full":
            return Kept(detail, 1)
    if match := _SAMPLED.fullmatch(detail):
        return Kept(detail, int(match[1]))
    raise StepscopeError(
        f"detail is {detail!r}: it is one of steps, transitions, full, and sampled=N "
        "(sampled=10 keeps the requests of every tenth step)"
    )


def chosen_detail(flag: Detail | None, environment: Mapping[str, str]) -> Detail:
    """Returns the detail that the flag names, else the environment, else the default.

    Raises:
        StepscopeError: There is no such detail.
    """
    detail = flag or environment.get(VARIABLE) or DEFAULT_DETAIL
    return read_detail(detail).detail
