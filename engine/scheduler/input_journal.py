"""What reaches the scheduler from outside, written down: all that a replay has to give it again.

Each event says how many steps were in flight when it came, which puts it in its place between the
calls of `schedule()` and `update_from_output()`. What follows from these inputs is decisions, and
the business of `journal`; answers of a KV connector are `load_journal`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from engine.request import Request
from engine.scheduler.open_steps import OpenSteps
from telemetry.content_hashes import ContentHashes, Item
from telemetry.recorder import Recorder
from telemetry.records import (
    DraftCounts,
    Event,
    RequestArrived,
    SessionInputAdded,
    TokensAppended,
)
from telemetry.vocabulary import EventKind, FinishReason, SkipReason

if TYPE_CHECKING:
    from engine.scheduler.state import PauseState, SchedulerState
    from engine.session import SessionInput


class InputJournal(OpenSteps):
    """Takes down requests, further input, and what operators do."""

    def __init__(
        self, recorder: Recorder, clock: Callable[[], int], scheduler: SchedulerState
    ) -> None:
        super().__init__(recorder, clock, scheduler)
        self._salt = os.urandom(16)
        self._contents = ContentHashes(scheduler.config.cache.hash_block_size)

    def arrived(self, request: Request) -> None:
        """A request has been queued; told at once, also while steps are in flight.

        Nothing can come before it, and a request that is stuck has to be in the log.
        """
        times, items = request.times, request.encoder_items
        times.arrived = self._clock()
        if self._is_off:
            return
        event = RequestArrived(
            step=self._step,
            ts=times.arrived,
            request=request.number,
            reason=request.blocked_by,
            num_steps_in_flight=self._num_in_flight,
            request_id=request.request_id,
            num_prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.sampling.max_tokens,
            min_tokens=request.sampling.min_tokens,
            ignore_eos=request.sampling.ignore_eos,
            priority=request.priority,
            arrival_time=request.arrival_time,
            adapter=request.adapter,
            grammar_key=self._salted(None if request.grammar is None else request.grammar.key),
            salt_key=self._salted(request.cache_salt),
            reads_cache=request.reads_prefix_cache,
            session=None if request.session is None else request.request_id,
            received_ts=times.received,
            tokenized_ts=times.tokenized,
            trace_id=request.trace_id,
            parent_span_id=request.parent_span_id,
            trace_sampled=request.trace_sampled,
            prefix_hashes=self._prefix_hashes(request),
            content_hashes=self._content_hashes(request),
        )
        if items:
            event.item_positions = [item.position for item in items]
            event.item_embeds = [item.num_embeds for item in items]
            event.item_keys = " ".join(self._salted(item.key) or "" for item in items)
        self._between.append(event)
        if request.blocked_by is SkipReason.grammar_compiling:
            self._note(EventKind.grammar_started, request)
        self.publish_between_steps()

    def input_added(self, request: Request, piece: SessionInput) -> None:
        """A session's next turn has begun, with more input."""
        self._events.append(
            SessionInputAdded(
                step=self._step,
                ts=self._clock(),
                request=request.number,
                num_steps_in_flight=self._num_in_flight,
                num_input_tokens=len(piece.token_ids),
                num_prompt_tokens=request.num_prompt_tokens,
                max_tokens=piece.max_tokens,
                arrival_time=piece.arrival_time,
                prefix_hashes=self._prefix_hashes(request),
            )
        )
        self.publish_between_steps()

    def unblocked(self, request: Request, failure: SkipReason | None) -> None:
        """What a request waits for has come, or never will; `blocked_by` still says what it was."""
        kind = EventKind.unblocked
        if failure is not None:
            kind = EventKind.grammar_failed
        elif request.blocked_by is SkipReason.grammar_compiling:
            kind = EventKind.grammar_ready
        self._note(kind, request, failure)
        self.publish_between_steps()

    def tokens_appended(self, request: Request, num_tokens: int) -> None:
        """A request has been given outputs that were not sampled."""
        self._events.append(
            TokensAppended(
                step=self._step,
                ts=self._clock(),
                request=request.number,
                num_steps_in_flight=self._num_in_flight,
                num_tokens=num_tokens,
            )
        )
        self.publish_between_steps()

    def drafts_proposed(self, drafts: Mapping[Request, int]) -> None:
        """Requests have been given so many drafts; the next step begins with this event."""
        if drafts and self._recorder.is_recording:
            event = DraftCounts(
                kind=EventKind.drafts_proposed,
                step=self._step,
                ts=self._clock(),
                num_steps_in_flight=self._num_in_flight,
                draft_requests=[request.number for request in drafts],
                draft_counts=list(drafts.values()),
            )
            self._events.append(event)

    def pause_changed(self, pause: PauseState) -> None:
        """An operator paused or unpaused the engine."""
        if pause.name == "UNPAUSED":
            self._tell(EventKind.unpaused)
        else:
            self._tell(EventKind.paused, pause.name)

    def cache_reset(self, done: bool) -> None:
        """Somebody asked for an empty prefix cache."""
        self._tell(EventKind.prefix_cache_reset, None if done else "refused: blocks are in use")

    def encoder_cache_reset(self) -> None:
        """The encoder cache has been emptied."""
        self._tell(EventKind.encoder_cache_reset)

    # ------------------------------------------------------------------------------------ in detail

    def _prefix_hashes(self, request: Request) -> bytes | None:
        """Returns the hashes of a request's full blocks, for the collector to compare."""
        recording = self._recorder.is_recording
        return self._scheduler.kv.prefix_hashes(request) if recording else None

    def _content_hashes(self, request: Request) -> bytes | None:
        """Returns what is in the full blocks of a prompt, whatever they are found by."""
        if not self._recorder.is_recording:
            return None
        items = [Item(item.key, item.position, item.end) for item in request.encoder_items]
        return self._contents.of(request.token_ids, items)

    def _salted(self, key: str | None) -> str | None:
        """Returns a key that says which are equal in this run, and nothing of what they are."""
        if key is None:
            return None
        return blake2b(key.encode(), key=self._salt, digest_size=8).hexdigest()

    def _tell(self, kind: EventKind, text: str | None = None) -> None:
        """Notes what happened to the engine."""
        event = Event(kind=kind, step=self._step, ts=self._clock(), text=text)
        event.num_steps_in_flight = self._num_in_flight
        self._events.append(event)
        self.publish_between_steps()

    def _note(
        self,
        kind: EventKind,
        request: Request,
        reason: SkipReason | FinishReason | None = None,
        *,
        ts: int | None = None,
    ) -> None:
        """Notes what happened to a request."""
        if self._is_off:
            return
        self._events.append(
            Event(
                kind=kind,
                step=self._step,
                ts=self._clock() if ts is None else ts,
                request=request.number,
                reason=reason,
                num_steps_in_flight=self._num_in_flight,
            )
        )
