"""KV transfers that the engine waits for, and since when."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.request import Request


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A load that nobody waits for any more, and the blocks that it may still write into.

    `ticket` is what the blocks are held under, `since` when the load was given up (ns).
    """

    request: Request
    ticket: int
    since: int


@dataclass(slots=True)
class Transfers:
    """What is on its way, by request, on the scheduler's clock (ns).

    Invariants:
        Each mapping is in the order in which things began: whoever is overdue stands first.
    """

    loads_since: dict[Request, int] = field(default_factory=dict)
    """Asynchronous loads that their requests wait for."""
    acks_since: dict[str, int] = field(default_factory=dict)
    """Ended requests whose KV is being sent, as long as that is in time."""
    kept_since: dict[str, int] = field(default_factory=dict)
    """Ended requests whose blocks a transfer still needs; the keys of `SchedulerState.kept`."""
    given_up: dict[str, GivenUp] = field(default_factory=dict)
    """Loads that were given up and have not been reported."""
    newly_given_up: list[str] = field(default_factory=list)
    """Those of them that the workers have not been told of."""

    def oldest_load_ns(self, now: int) -> int | None:
        """Returns how long the oldest load has been waited for; None where there is none."""
        began = next(iter(self.loads_since.values()), None)
        return None if began is None else now - began

    def involve(self, request_id: str) -> bool:
        """Whether an old transfer under this id has not ended."""
        return request_id in self.kept_since or request_id in self.given_up
