"""The calls of a recorded run, in their order.

An input's place among the calls of `schedule()` and `update_from_output()` is two counts: steps
decided before it, and steps taken in before it. A row says its step and how many steps were in
flight when it came; a step's row says how many were in flight once it was decided. Steps are taken
in in the order in which they were decided. At one place inputs are in the order of their times:
arrivals are told at once, other events with the step that is open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from diagnose.replay.calls import (
    AddRequest,
    AppendTokens,
    Call,
    CloseSession,
    EndRequest,
    ExpireLease,
    GiveUpLoad,
    ProposeDrafts,
    ResetEncoderCache,
    ResetPrefixCache,
    Schedule,
    SetPause,
    TakeInput,
    TakeStep,
    Unblock,
)
from diagnose.replay.rows import Row, RunRows
from engine.scheduler import PauseState
from engine.scheduler.load_journal import ENCODER_CONNECTOR
from telemetry.vocabulary import EventKind, FinishReason, PreemptionCause, SkipReason

_Place = tuple[int, int]
"""Steps decided and steps taken in before something came."""


def calls_of(rows: RunRows) -> Iterator[Call]:
    """Yields all inputs of a run and the calls of its step loop."""
    order = _Order(rows)
    for row in rows.steps:
        for step in range(row["step"], row["step"] + row["num_repeats"]):
            yield from order.take_in(step + 1 - row["num_steps_in_flight"])
            yield from order.decide(step, is_throttled=row["throttled"] is not None)
    num_open = sum(row["is_open"] for row in rows.steps)
    yield from order.take_in(order.num_decided - num_open)


class _Order:
    """How far the step loop has got, and what comes where."""

    def __init__(self, rows: RunRows) -> None:
        self.num_decided = self._num_taken_in = 0
        self._outside: dict[_Place, list[Call]] = defaultdict(list)
        self._before: dict[int, list[Call]] = defaultdict(list)
        self._during: dict[int, list[Call]] = defaultdict(list)
        self._taken_in: dict[int, TakeStep] = {}
        self._sessions = {row["request"] for row in rows.arrivals if row["session"] is not None}
        self._num_texts: dict[int, int] = defaultdict(int)
        self._is_reset = False
        for row in sorted(rows.events, key=lambda row: (row["ts"], row["seq"])):
            self._sort(row)

    def decide(self, step: int, *, is_throttled: bool) -> Iterator[Call]:
        """Yields what happens in the step's decision, and the step."""
        yield from self._before.get(step, ())
        yield Schedule(step, is_throttled)
        self.num_decided += 1

    def take_in(self, until: int) -> Iterator[Call]:
        """Yields the updates of the steps before `until`, and all that comes before and after."""
        while self._num_taken_in < until:
            step = self._num_taken_in
            yield from self._outside.get((self.num_decided, step), ())
            yield from self._during.get(step, ())
            yield self._taken_in.get(step) or TakeStep(step=step)
            self._num_taken_in += 1
        yield from self._outside.get((self.num_decided, self._num_taken_in), ())

    # ------------------------------------------------------------------------------ what goes where

    def _sort(self, row: Row) -> None:
        if row["kind"] == EventKind.preempted:
            self._is_reset = row["cause"] == PreemptionCause.cache_reset
            return
        if row["num_steps_in_flight"] is None:
            self._sort_own_doing(row)
        elif (call := self._from_outside(row)) is not None:
            self._outside[_place(row)].append(call)

    def _from_outside(self, row: Row) -> Call | None:
        """Returns what somebody outside did; None for what follows from something else."""
        request: int = row["request"]
        match row["kind"]:
            case EventKind.arrived:
                return AddRequest(request)
            case EventKind.input_added:
                return TakeInput(request, self._next_text(request))
            case EventKind.finished:
                return EndRequest(request, FinishReason(row["reason"]))
            case EventKind.unblocked | EventKind.grammar_ready:
                return Unblock(request, None)
            case EventKind.grammar_failed:
                return Unblock(request, SkipReason(row["reason"]))
            case EventKind.tokens_appended:
                return AppendTokens(request, row["num_tokens"])
            case EventKind.drafts_proposed:
                counts = zip(row["draft_requests"], row["draft_counts"], strict=True)
                return ProposeDrafts(dict(counts))
            case EventKind.paused | EventKind.unpaused:
                return SetPause(PauseState[row["text"] or "UNPAUSED"])
            case EventKind.prefix_cache_reset:
                was_reset, self._is_reset = self._is_reset, False
                return ResetPrefixCache(was_reset)
            case EventKind.encoder_cache_reset:
                return ResetEncoderCache()
        return None

    def _sort_own_doing(self, row: Row) -> None:
        """Finds the inputs behind what the scheduler did in a step or in its update."""
        request, step = row["request"], row["step"]
        match row["kind"]:
            case EventKind.input_added:
                call = TakeInput(request, self._next_text(request), queued=True)
                self._during[step].append(call)
            case EventKind.finished if request in self._sessions:
                if row["reason"] in (FinishReason.stop, FinishReason.length):
                    self._during[step].append(CloseSession(request))
            case EventKind.load_timed_out:
                self._before[step].append(GiveUpLoad(request))
            case EventKind.lease_expired:
                self._before[step].append(ExpireLease(request))
            case EventKind.grammar_ready:  # vLLM's scheduler looks for itself, as it decides
                self._before[step].append(Unblock(request, None))
            case EventKind.drafts_verified:
                accepted = zip(row["draft_requests"], row["draft_counts"], strict=True)
                self._update(step).num_accepted.update(accepted)
            case EventKind.load_finished if row["connector"] == ENCODER_CONNECTOR:
                self._update(step).received_items.append(row["text"])
            case EventKind.load_failed if row["connector"] == ENCODER_CONNECTOR:
                self._update(step).failed_items.append(row["text"])
            case EventKind.load_finished:
                self._update(step).received.append(request)
            case EventKind.ack_received:
                self._update(step).sent.append(request)
            case EventKind.load_failed if row["invalid_blocks"] is None:
                self._update(step).failed.append(request)
            case EventKind.load_failed:
                self._update(step).invalid[request] = row["invalid_blocks"]

    def _update(self, step: int) -> TakeStep:
        return self._taken_in.setdefault(step, TakeStep(step=step))

    def _next_text(self, request: int) -> int:
        self._num_texts[request] += 1
        return self._num_texts[request]


def _place(row: Row) -> _Place:
    in_flight: int = row["num_steps_in_flight"]
    num_decided: int = row["step"] + (in_flight > 0)
    return num_decided, num_decided - in_flight
