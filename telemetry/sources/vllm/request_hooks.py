"""What the journal hears of requests and operators: they come, they go, they pause and reset."""

from __future__ import annotations

from functools import partial
from typing import Any

from telemetry.records import DraftCounts, Event, SessionInputAdded, TurnFinished
from telemetry.sources.vllm.arrivals import arrival
from telemetry.sources.vllm.endings import ending, reason_of
from telemetry.sources.vllm.lives import Life
from telemetry.sources.vllm.parts import Parts
from telemetry.vocabulary import EventKind, FinishReason, SkipReason


class RequestHooks(Parts):
    """Takes down what reaches the scheduler from outside, and how requests end."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ends_all = False
        self._closes_session = False
        self._turn: TurnFinished | None = None
        self._pause: Any = None

    # ------------------------------------------------------------------------------ arrival

    def before_add_request(self, request: Any) -> None:
        """A request is about to be queued; one that is there already may be a session to close."""
        self._closes_session = request.request_id in self.scheduler.requests

    def after_add_request(self, _: None, request: Any) -> None:
        """A request has been queued, or is another piece of a session's input."""
        self._closes_session = False
        if self.scheduler.requests.get(request.request_id) is not request:
            return
        life = self.lives.born(request, self.clock())
        event = arrival(life, self.keys, self.features, is_extended=self.extends_ids)
        event.step = self.steps.step
        event.num_steps_in_flight = self.steps.num_in_flight
        event.prefix_hashes = self.hashes_of(life)
        event.content_hashes = self.contents_of(life)
        reason = self.waiting.reason_of_blocked(request)
        event.reason = reason
        told: list[Event] = [event]
        if reason is SkipReason.grammar_compiling and self.features.grammar:
            life.awaits_grammar = True
            told.append(self.note(EventKind.grammar_started, life))
        if reason is not None and self.features.waiting_reasons:
            life.skipped_for = reason
            told.append(self.note(EventKind.skipped, life, reason))
        self.steps.tell_now(*told)

    def after_update_request_as_session(self, _: None, session: Any, update: Any) -> None:
        """A session's next turn begins, with more input."""
        self._tell_turn()
        life = self.lives.of(session)
        if life is None:
            return
        life.blocks.clear()
        self.tell(
            SessionInputAdded(
                step=self.steps.step,
                ts=self.clock(),
                request=life.number,
                num_steps_in_flight=self.steps.num_in_flight,
                num_input_tokens=len(update.prompt_token_ids or ()),
                num_prompt_tokens=session.num_prompt_tokens,
                max_tokens=session.max_tokens,
                arrival_time=session.arrival_time,
                prefix_hashes=self.hashes_of(life),
            )
        )

    def after_update_draft_token_ids(self, _: None, draft_token_ids: Any) -> None:
        """Requests have been given drafts; the next step may verify them."""
        counts = {}
        for name in draft_token_ids.req_ids:
            life = self.lives.by_id.get(name)
            if life is not None:
                num_drafts = len(life.request.spec_token_ids)
                counts[life.number] = self.lives.proposed[name] = num_drafts
        if counts:
            event = DraftCounts(
                kind=EventKind.drafts_proposed,
                step=self.steps.step,
                ts=self.clock(),
                num_steps_in_flight=self.steps.num_in_flight,
                draft_requests=list(counts),
                draft_counts=list(counts.values()),
            )
            self.steps.tell_with_next(event)

    # ------------------------------------------------------------------------------ the end

    def before_finish_requests(self, request_ids: Any, finished_status: Any) -> None:
        """Requests are ended from outside: some, or all there are."""
        self._ends_all = request_ids is None

    def after_finish_requests(self, _: Any, request_ids: Any, finished_status: Any) -> None:
        """They are ended."""
        self._ends_all = False

    def after_free_request(self, _: Any, request: Any, delay_free_blocks: bool = False) -> None:
        """A request has ended, for whatever reason."""
        life = self.lives.of(request)
        if life is None:
            return
        reason = reason_of(request.status, ends_all=self._ends_all)
        if self._closes_session:
            reason = FinishReason.stop
        self.when_tokens_are_told(partial(self._end, life, reason))

    def _end(self, life: Life, reason: FinishReason) -> None:
        name = life.request.request_id
        is_kept = name in self.scheduler.requests
        self.times.leave(name)
        event = ending(life, reason, self.update_ts or self.clock())
        event.step = self.steps.step
        event.num_steps_in_flight = self.steps.num_in_flight
        event.prefix_hashes = self.hashes_of(life)
        was_loading = life.load_since is not None
        self.loads.stopped_loading(life, event.ts)
        self.lives.ended(name, is_kept=is_kept)
        self.steps.tell(event)
        if is_kept and not was_loading and self.features.connector_stages:
            self.loads.kept(life)

    def before_handle_stopped_request(self, request: Any) -> None:
        """A request has had its last token; where it is a session, only its turn may be over."""
        life = self.lives.of(request)
        self._turn = None
        if request.resumable and life is not None:
            self._turn = TurnFinished(
                step=self.steps.step,
                ts=self.update_ts or self.clock(),
                request=life.number,
                reason=reason_of(request.status),
                num_tokens=request.num_output_tokens,
            )

    def after_handle_stopped_request(self, is_finished: bool, request: Any) -> None:
        """It has ended, or goes on with another turn."""
        if is_finished:
            self._turn = None
            return
        self._tell_turn()
        life = self.lives.of(request)
        if life is None:
            return
        self.lives.stops(request.request_id)
        if request.status is self.statuses.WAITING_FOR_STREAMING_REQ:
            life.skipped_for = SkipReason.streaming_input
            self.tell(self.note(EventKind.skipped, life, SkipReason.streaming_input))

    def _tell_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self.tell(turn)

    # ------------------------------------------------------------------------------ operators

    def after_set_pause_state(self, _: None, pause_state: Any) -> None:
        """An operator paused or unpaused the engine."""
        name = pause_state.name
        if name == self._pause or (self._pause is None and name == "UNPAUSED"):
            return
        self._pause = name
        is_over = name == "UNPAUSED"
        event = self.note(EventKind.unpaused if is_over else EventKind.paused, None)
        event.text = None if is_over else name
        self.steps.tell(event)

    def after_reset_prefix_cache(self, is_done: bool, *_: Any, **__: Any) -> None:
        """Somebody asked for an empty prefix cache."""
        event = self.note(EventKind.prefix_cache_reset, None)
        event.text = None if is_done else "refused: blocks are in use"
        self.steps.tell(event)

    def after_reset_encoder_cache(self, _: None) -> None:
        """The encoder cache has been emptied."""
        self.steps.tell(self.note(EventKind.encoder_cache_reset, None))
