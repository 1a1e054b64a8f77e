"""What is remembered of each request that is in the scheduler, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from telemetry.vocabulary import FinishReason, SkipReason


@dataclass(slots=True)
class LoadAnswer:
    """What a KV connector said: KV up to the token `reach` (0: none); None: it cannot tell yet."""

    reach: int | None
    is_async: bool

    def foretells(self, num_local_tokens: int, num_external_tokens: int | None) -> bool:
        """Returns whether an answer to another look-up says the same."""
        if self.reach is None or num_external_tokens is None:
            return self.reach is num_external_tokens
        return max(0, self.reach - num_local_tokens) == num_external_tokens


@dataclass(slots=True, eq=False)
class Life:
    """One request: its number in the record, its times, and what was last told of it.

    Times are on the engine's clock, in ns; None: it has not come to that.
    """

    number: int
    request: Any
    """vLLM's own object of it."""
    arrived_ts: int
    adapter: int | None = None
    admitted_ts: int | None = None
    first_token_ts: int | None = None
    last_token_ts: int | None = None
    preempted_ts: int | None = None
    preempted_ns: int = 0
    load_since: int | None = None
    """When the KV load that it waits for began."""
    load_ns: int | None = None
    max_itl_ns: int | None = None
    high_water: int = 0
    """Most tokens it ever had computed; positions below it are computed again after a loss."""
    is_catching_up: bool = False
    """Resumed after a preemption, and without an output since."""
    awaits_grammar: bool = False
    skipped_for: SkipReason | None = None
    """Why it was last set aside; stays until it is admitted."""
    loaded_from: int | None = None
    """Local hit behind which KV was loaded beside the steps."""
    has_lost_load: bool = False
    answer: LoadAnswer | None = None
    turn_ends_by: FinishReason | None = None
    blocks: bytearray = field(default_factory=bytearray)
    """Keyed hashes of its full blocks, as far as they were asked for."""
    drafts_placed: list[int] = field(default_factory=list)
    drafts_accepted: list[int] = field(default_factory=list)


class Lives:
    """All requests in the scheduler, by vLLM's id of them.

    `computing` are those of the running ones that have not reached plain decoding: each step looks
    at them, and at them only, to tell prompt, output and recomputed tokens apart.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Life] = {}
        self.kept: dict[str, Life] = {}
        """Requests that have ended and whose blocks a transfer still needs."""
        self.computing: dict[str, Life] = {}
        self.with_adapter: dict[str, Life] = {}
        """Running requests that use an adapter."""
        self.proposed: dict[str, int] = {}
        """Drafts that requests were given and no step has taken yet."""
        self._num_born = 0

    def born(self, request: Any, ts: int) -> Life:
        """Returns the life of a request that has just arrived."""
        lora = request.lora_request
        life = Life(self._num_born, request, ts, None if lora is None else lora.lora_int_id)
        self._num_born += 1
        self.by_id[request.request_id] = life
        return life

    def of(self, request: Any) -> Life | None:
        """Returns the life of a request; None where its arrival was not seen."""
        return self.by_id.get(request.request_id)

    def runs(self, request_id: str, life: Life) -> None:
        """A request joins the running ones."""
        life.skipped_for = None
        self.computing[request_id] = life
        if life.adapter is not None:
            self.with_adapter[request_id] = life

    def stops(self, request_id: str) -> None:
        """A request runs no more."""
        self.computing.pop(request_id, None)
        self.with_adapter.pop(request_id, None)
        self.proposed.pop(request_id, None)

    def ended(self, request_id: str, *, is_kept: bool) -> None:
        """A request has ended; with `is_kept` its blocks stay for a transfer."""
        self.stops(request_id)
        life = self.by_id.pop(request_id, None)
        if is_kept and life is not None:
            self.kept[request_id] = life
