"""KV that comes from elsewhere and goes there, written down: answers, loads, failures, sends."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.encoder_cache import EncoderItem
from engine.request import Request
from engine.scheduler.input_journal import InputJournal
from telemetry.recorder import Recorder
from telemetry.records import ConnectorEvent
from telemetry.vocabulary import EventKind

if TYPE_CHECKING:
    from engine.scheduler.state import SchedulerState


ENCODER_CONNECTOR = "encoder"
"""What an event of an encoder output's transfer has in `connector`; `text` is the item's key."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a connector said: KV up to the token `reach` (0: none), or None: it cannot tell yet."""

    reach: int | None
    is_async: bool = False

    def foretells(self, num_local_tokens: int, num_external_tokens: int | None) -> bool:
        """Whether an answer to another look-up says the same."""
        if self.reach is None or num_external_tokens is None:
            return self.reach is num_external_tokens
        return max(0, self.reach - num_local_tokens) == num_external_tokens


class LoadJournal(InputJournal):
    """Takes down what a KV connector says and brings."""

    def __init__(
        self, recorder: Recorder, clock: Callable[[], int], scheduler: SchedulerState
    ) -> None:
        super().__init__(recorder, clock, scheduler)
        self._answers: dict[int, _Answer] = {}
        self._loaded: dict[int, int] = {}
        """Local hit of each request whose KV is or was loaded beside the steps."""

    def looked_up(
        self,
        request: Request,
        num_local_tokens: int,
        num_external_tokens: int | None,
        *,
        is_async: bool,
    ) -> None:
        """A connector has been asked what it has behind the local hit; told where that is new."""
        known = self._answers.get(request.number)
        if (
            known is not None
            and known.is_async == is_async
            and known.foretells(num_local_tokens, num_external_tokens)
        ):
            return
        reach = num_external_tokens and num_local_tokens + num_external_tokens
        self._answers[request.number] = _Answer(reach, is_async)
        is_known = num_external_tokens is not None
        kind = EventKind.lookup_answered if is_known else EventKind.lookup_pending
        event = self.connector(kind, request, num_external_tokens)
        event.num_hit_tokens = num_local_tokens
        event.is_async = int(is_async) if is_known else None

    def load_started(self, request: Request, num_local: int, num_external: int) -> None:
        """A load has begun, into blocks that the request holds now."""
        self._loaded[request.number] = num_local
        held = self._scheduler.kv.num_blocks_held(request)
        event = self.connector(EventKind.load_started, request, num_external, held)
        event.num_hit_tokens, event.is_async = num_local, 1

    def load_failed(
        self, request: Request, invalid_blocks: Collection[int] | None, why: str | None = None
    ) -> None:
        """A load has failed and the request has been cut back.

        Args:
            invalid_blocks: places of the failed blocks in its first block table; None: all of it.
            why: what the connector says of it.
        """
        event = self.connector(EventKind.load_failed, request, request.num_computed_tokens)
        event.text = why
        config = self._scheduler.config.kv_connector
        if config is not None:
            event.policy = int(config.load_failure_policy == "fail")
        if invalid_blocks is not None:
            event.invalid_blocks = sorted(invalid_blocks)
            event.num_invalid_blocks = len(invalid_blocks)

    def encoder_load(self, kind: EventKind, request: Request, item: EncoderItem) -> None:
        """A stage of an encoder output's way from elsewhere, for the request that asked first."""
        event = self.connector(kind, request, item.num_embeds)
        event.connector, event.text = ENCODER_CONNECTOR, self._salted(item.key)

    def connector(
        self,
        kind: EventKind,
        request: Request,
        num_tokens: int | None = None,
        num_blocks: int | None = None,
    ) -> ConnectorEvent:
        """A stage of a transfer."""
        event = ConnectorEvent(kind=kind, step=self._step, ts=self._clock(), request=request.number)
        event.num_tokens, event.num_blocks = num_tokens, num_blocks
        event.num_steps_in_flight = self._num_in_flight
        config = self._scheduler.config.kv_connector
        event.connector = None if config is None else config.connector
        self._events.append(event)
        return event

    def _take_loaded(self, request: Request) -> tuple[int, int] | None:
        """Returns local hit and loaded tokens behind which a request starts to compute.

        None where nothing was loaded beside the steps.
        """
        num_local = self._loaded.pop(request.number, None)
        if num_local is None:
            return None
        start = request.num_computed_tokens
        return min(num_local, start), max(0, start - num_local)

    def _forget(self, request: Request) -> None:
        """A request has ended."""
        self._answers.pop(request.number, None)
        self._loaded.pop(request.number, None)
