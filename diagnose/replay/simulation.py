"""Schedules a load again, step by step, on a clock of its own.

A fresh scheduler is driven as an engine drives it: take in what has come, decide, let the step take
its time (`step_times`), take in its tokens. Nothing waits and nothing is computed but decisions.
What a replay cannot know is taken from the record: how long an answer gets, how long a connector or
a grammar takes, how many drafts are right.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from typing import Any, Literal

from diagnose.replay.arena import TokenArena
from diagnose.replay.measures import Measures
from diagnose.replay.outcome import Account, Outcome
from diagnose.replay.settings import without_deadlines
from diagnose.replay.simulated_connector import SimulatedConnector
from diagnose.replay.simulated_drafts import SimulatedDrafts
from diagnose.replay.step_features import features_of
from diagnose.replay.step_times import NUM_FEATURES, StepClock
from diagnose.replay.workload import Act, Workload, WorkRequest
from engine.request import Request
from engine.sampling import SamplingParams
from engine.scheduler import ModelRunnerOutput, PauseState, Scheduler, SchedulerOutput
from telemetry.vocabulary import FinishReason, SkipReason

MAX_EMPTY_STEPS = 4
"""Steps in a row that schedule nothing, until the next event is waited for."""
_WARM_STEPS = 10_000

_Kind = Literal["arrive", "abort", "ready", "loaded", "failed", "sent", "look", "act"]
_Flight = tuple[SchedulerOutput, list[str], int]
"""A step under way: what was decided, who is sampled, how long it takes."""


def simulate(workload: Workload, *, seed: int = 0, max_steps: int | None = None) -> Outcome:
    """Returns what becomes of a load.

    Args:
        seed: of the step times; the same gives the same result.
        max_steps: stop after so many.
    """
    return _Simulation(workload, seed).run(max_steps)


def measured(workload: Workload, *, seed: int = 0) -> Measures:
    """Returns the quantities of one replay."""
    return simulate(workload, seed=seed).measures


class _Simulation:
    """One replay; use once."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._works: list[WorkRequest] = list(workload.requests)
        self._clock = StepClock(workload.step_times, seed)
        self.now = 0
        config = without_deadlines(workload.config)
        self._connector = (
            SimulatedConnector(self._works, self._time, workload.latency_factor)
            if config.kv_connector is not None
            else None
        )
        self.scheduler = Scheduler(config, clock=self._time, connector=self._connector)
        numbers = [work.number for work in self._works]
        self._account = Account(self._time, self.scheduler, numbers)
        self.scheduler.journal = self._account
        self._depth = config.scheduler.max_concurrent_batches
        k = config.speculation.num_speculative_tokens
        self._drafts = (
            SimulatedDrafts(self._works, k, workload.drafts, self._clock.random) if k else None
        )
        self._proposes = k > 0 and not config.scheduler.async_scheduling
        self._arena = TokenArena(len(self._works))
        self._requests: dict[int, Request] = {}
        self._events: list[tuple[int, int, _Kind, Any]] = []
        self._num_events = 0
        self._received: set[str] = set()
        self._failed: set[str] = set()
        self._sent: set[str] = set()
        self._pending: deque[_Flight] = deque()
        self._num_to_finish = sum(work.is_finished for work in self._works)
        self._next_closed = len(self._works)
        self._largest = [0.0] * NUM_FEATURES
        self._num_steps = 0
        self._finish_of_last = 0

    def run(self, max_steps: int | None) -> Outcome:
        """Replays to the end."""
        self._plan_arrivals()
        for act in self._workload.acts:
            self._at(act.ts_ns, "act", act)
        self._take_up()
        is_stuck, num_empty = False, 0
        while max_steps is None or self._num_steps < max_steps:
            self._let_come()
            if self._is_over():
                break
            if not self._pending and not self.scheduler.has_requests():
                if not self._wait():
                    break
                continue
            num_tokens = self._step()
            num_empty = 0 if num_tokens or self._pending else num_empty + 1
            if num_empty >= MAX_EMPTY_STEPS and not self._wait():
                is_stuck = bool(self._requests)
                break
        is_cut = max_steps is not None and self._num_steps >= max_steps
        return self._account.outcome(
            duration_ns=self._account.last_end,
            num_steps=self._num_steps,
            num_unfinished=len(self._works) - self._account.num_finished,
            is_stuck=is_stuck,
            is_cut=is_cut,
            largest=tuple(self._largest),
        )

    # ------------------------------------------------------------------------------------- arrivals

    def _plan_arrivals(self) -> None:
        clients = self._workload.clients
        rate = self._workload.rate_factor
        first = len(self._works)
        if clients.kind == "closed" and clients.num_in_flight is not None:
            first = min(first, clients.num_in_flight)
        for index, work in enumerate(self._works[:first]):
            if work.arrived_ns >= 0:
                self._at(int(work.arrived_ns / rate), "arrive", index)
        self._next_closed = first

    def _ask_again(self) -> None:
        """A client whose answer is complete sends the next request, after it has thought."""
        if self._next_closed >= len(self._works):
            return
        pauses = self._workload.clients.think_ns
        pause = pauses[int(self._clock.random() * len(pauses))]
        self._at(self.now + int(pause / self._workload.rate_factor), "arrive", self._next_closed)
        self._next_closed += 1

    def _take_up(self) -> None:
        """Brings the requests that were in flight at the start back to where they were."""
        works = [(i, w) for i, w in enumerate(self._works) if w.arrived_ns < 0]
        if not works:
            return
        self._account.is_on = False
        for index, work in works:
            self.now = work.arrived_ns
            self._add(index)
        self.now = 0
        for _ in range(_WARM_STEPS):
            lacking = [
                request
                for index, work in works
                if work.was_running
                and (request := self._requests.get(index)) is not None
                and request.is_prefill_chunk | (request.num_computed_tokens == 0)
            ]
            before = self.scheduler.num_preemptions
            if (
                not lacking
                or not self._step(is_timed=False)
                or before < self.scheduler.num_preemptions
            ):
                break
        while self._pending:
            self._finish_oldest(is_timed=False)
        self.now = self._finish_of_last = self._num_steps = 0
        self._account.is_on = True

    # --------------------------------------------------------------------------------------- events

    def _at(self, time_ns: int, kind: _Kind, what: Any) -> None:
        self._num_events += 1
        heapq.heappush(self._events, (time_ns, self._num_events, kind, what))

    def _wait(self) -> bool:
        """Lets time pass to the next event; False where there is none."""
        if not self._events:
            return False
        self.now = max(self.now, self._events[0][0])
        return True

    def _let_come(self) -> None:
        """Takes in what is due; an idle engine takes a moment from there to its step."""
        was_idle = not self._pending and not self.scheduler.has_requests()
        self._take_due()
        if was_idle and self.scheduler.has_requests():
            self.now += self._workload.step_times.wake_ns
            self._take_due()

    def _take_due(self) -> None:
        events = self._events
        while events and events[0][0] <= self.now:
            _, _, kind, what = heapq.heappop(events)
            match kind:
                case "arrive":
                    self._add(what)
                case "abort":
                    self._abort(what)
                case "ready":
                    self.scheduler.unblock(_name(what))
                case "loaded":
                    self._received.add(what)
                case "failed":
                    self._failed.add(what)
                    self._received.add(what)
                case "sent":
                    self._sent.add(what)
                case "act":
                    self._act(what)
                case "look":
                    pass

    def _act(self, act: Act) -> None:
        if act.kind == "pause":
            self.scheduler.set_pause(PauseState[act.state])
        else:
            self.scheduler.reset_prefix_cache(reset_running=act.kind == "reset_running")

    def _add(self, index: int) -> None:
        work = self._works[index]
        tokens = self._text_of(work)
        blocked = SkipReason.grammar_compiling if work.blocked_ns > 0 else None
        request = Request(
            _name(index),
            number=index,
            prompt_token_ids=tokens[: work.num_prompt_tokens],
            sampling=SamplingParams(max_tokens=max(1, work.num_output_tokens), ignore_eos=True),
            arrival_time=(self.now - work.received_before_ns) / 1e9,
            priority=work.priority,
            reads_prefix_cache=work.reads_cache,
            adapter=work.adapter,
            cache_salt=work.salt_key,
            encoder_items=work.encoder_items,
            blocked_by=blocked,
        )
        begin = work.num_prompt_tokens
        request.token_ids.extend(tokens[begin : begin + work.num_outputs_before])
        self._arena.add(index, tokens)
        self._requests[index] = request
        self.scheduler.add_request(request)
        request.times.arrived = self.now
        if blocked is not None:
            self._at(self.now + work.blocked_ns, "ready", index)
        if work.aborted_after_ns is not None:
            self._at(max(0, self.now + work.aborted_after_ns), "abort", index)

    def _text_of(self, work: WorkRequest) -> array[int]:
        """Returns prompt and outputs of a request; one that the record does not know is new."""
        made_up = self._workload.tokens
        if work.number not in made_up:
            made_up.add(work.number, work.num_tokens)
        return made_up.tokens(work.number, 0, 0, work.num_tokens)

    def _abort(self, index: int) -> None:
        request = self._requests.get(index)
        if request is None:
            return
        self.scheduler.settle()
        self.scheduler.finish_requests([request.request_id], FinishReason.abort_client)
        self._end(index, request, is_answered=False)

    # ---------------------------------------------------------------------------------------- steps

    def _step(self, *, is_timed: bool = True) -> int:
        """Decides a step, and takes in the oldest unless another may begin; returns its tokens."""
        num_tokens = 0
        if len(self._pending) < self._depth and self.scheduler.has_requests():
            output = self.scheduler.schedule()
            self._num_steps += 1
            num_tokens = output.total_num_scheduled_tokens
            duration = self._duration_of(output) if is_timed else 0
            self._pending.append((output, self._sampled_by(output), duration))
            self._begin_loads(output)
            if num_tokens and len(self._pending) < self._depth:
                return num_tokens
        if self._pending:
            self._finish_oldest(is_timed=is_timed)
        return num_tokens

    def _sampled_by(self, output: SchedulerOutput) -> list[str]:
        requests = self.scheduler.requests
        return [
            name for name in output.other_scheduled_tokens if not requests[name].is_prefill_chunk
        ]

    def _duration_of(self, output: SchedulerOutput) -> int:
        num_tokens = output.total_num_scheduled_tokens
        if num_tokens == 0:
            return self._workload.step_times.empty_ns
        features = features_of(self.scheduler, output)
        largest = self._largest
        for index, value in enumerate(features):
            if value > largest[index]:
                largest[index] = value
        return self._clock.draw(features, self.now)

    def _begin_loads(self, output: SchedulerOutput) -> None:
        connector = self._connector
        if connector is None:
            return
        for name in output.kv_loads_started:
            taken, fails = connector.next_load(_index(name))
            # what was recorded is when a step took it in: half a step after its end, on the whole
            taken = max(0, taken - int(self._workload.step_times.mean_ns) // 2)
            self._at(self.now + taken, "failed" if fails else "loaded", name)
        for end in connector.take_begun_lookups():
            self._at(end, "look", None)

    def _finish_oldest(self, *, is_timed: bool) -> None:
        """Lets the oldest step take its time, and takes in its tokens."""
        output, sampled, duration = self._pending.popleft()
        gap = min(self._workload.step_times.gap_ns, duration // 2) if is_timed else 0
        end = max(self._finish_of_last, self.now) + duration
        self.now = max(self.now, end - gap)
        result = self._result_of(output, sampled)
        results = self.scheduler.update_from_output(output, result)
        self._propose(sampled, output)
        self.now = max(self.now, end)
        self._finish_of_last = self.now
        told = results.others
        if results.decodes is not None and results.decodes.told:
            told = told + [each for each in results.decodes.told.values() if each is not None]
        for each in told:
            if each.finish_reason is not None:
                index = _index(each.request_id)
                self._end(index, self._requests[index], is_answered=True)

    def _result_of(self, output: SchedulerOutput, sampled: list[str]) -> ModelRunnerOutput:
        received, failed, sent = self._received, self._failed, self._sent
        tokens = {}
        drafts = output.scheduled_spec_decode_tokens
        for name in sampled:
            index = _index(name)
            request = self._requests.get(index)
            if request is None:
                continue
            count = 1
            if self._drafts is not None and name in drafts:
                count += self._drafts.num_accepted(index, len(drafts[name]))
            tokens[name] = self._arena.tokens(index, len(request.token_ids), count)
        decodes = None
        if output.decodes is not None:
            order = output.decodes.order
            positions = order.offset + (output.decodes.num_scheduled + 1)
            decodes = self._arena.next_tokens(order.number, positions)
        if not (received or failed or sent):
            return ModelRunnerOutput(sampled_token_ids=tokens, decode_token_ids=decodes)
        result = ModelRunnerOutput(
            sampled_token_ids=tokens,
            decode_token_ids=decodes,
            finished_recving=frozenset(received),
            failed_recving=frozenset(failed),
            finished_sending=frozenset(sent),
        )
        self._received, self._failed, self._sent = set(), set(), set()
        return result

    def _propose(self, sampled: list[str], output: SchedulerOutput) -> None:
        """Gives new drafts to who was sampled."""
        if self._drafts is None or not self._proposes:
            return
        requests = self.scheduler.requests
        names = sampled if output.decodes is None else sampled + output.decodes.request_ids
        drafts = {
            name: [0] * count
            for name in names
            if name in requests and (count := self._drafts.num_proposed(_index(name)))
        }
        if drafts:
            self.scheduler.update_draft_token_ids(drafts)

    def _end(self, index: int, request: Request, *, is_answered: bool) -> None:
        del self._requests[index]
        self._arena.drop(index)
        work = self._works[index]
        self._num_to_finish -= work.is_finished
        self._account.ended(
            request,
            is_finish=work.is_finished,
            is_answered=is_answered and work.is_finished and work.arrived_ns >= 0,
            num_outputs=request.num_output_tokens - work.num_outputs_before,
        )
        if self._connector is not None and self._connector.delays_free(request):
            self._at(self.now + self._connector.ack_ns(index), "sent", request.request_id)
        if self._workload.clients.kind == "closed":
            self._ask_again()

    def _is_over(self) -> bool:
        """Whether all that ended in the record has ended, and the rest had as much time."""
        if self._num_to_finish > 0:
            return False
        return not self._requests or self.now >= self._workload.duration_ns

    def _time(self) -> int:
        return self.now


def _name(index: int) -> str:
    return str(index)


def _index(name: str) -> int:
    return int(name)
