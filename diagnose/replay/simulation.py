"""Schedules a load again, step by step, on a clock of its own.

A fresh scheduler is driven as an engine drives it: take in what has come, decide, let the step take
its time (`step_times`), take in its tokens. Nothing waits and nothing is computed but decisions.
What a replay cannot know is taken from the record: how long an answer gets, how long a connector or
a grammar takes, how many drafts are right.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from diagnose.replay.outcome import Account, Outcome
from diagnose.replay.settings import without_deadlines
from diagnose.replay.simulated_clients import SimulatedClients
from diagnose.replay.simulated_runner import SimulatedRunner
from diagnose.replay.simulated_transfers import SimulatedTransfers
from diagnose.replay.step_features import features_of
from diagnose.replay.step_times import NUM_FEATURES, StepClock
from diagnose.replay.timeline import Timeline
from diagnose.replay.workload import Act, Workload
from engine.request import Request
from engine.sampling import SamplingParams
from engine.scheduler import PauseState, Scheduler, SchedulerOutput
from telemetry.vocabulary import FinishReason, SkipReason

MAX_EMPTY_STEPS = 4
"""Steps in a row that schedule nothing, until the next event is waited for."""
_WARM_STEPS = 10_000

_Event = tuple[Literal["arrive", "abort", "ready"], int] | Act
"""What befalls a request, by its number in the replay; or what an operator does."""
_Flight = tuple[SchedulerOutput, list[str], int]
"""A step under way: what was decided, who is sampled, how long it takes."""


def simulate(workload: Workload, *, seed: int = 0, max_steps: int | None = None) -> Outcome:
    """Returns what becomes of a load.

    Args:
        seed: of the step times; the same gives the same result.
        max_steps: stop after so many.
    """
    return _Simulation(workload, seed).run(max_steps)


class _Simulation:
    """One replay; use once."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._works = workload.requests
        self._clock = StepClock(workload.step_times, seed)
        self.now = 0
        self._requests: dict[int, Request] = {}
        config = without_deadlines(workload.config)
        self._transfers = SimulatedTransfers(workload, config, self._requests, self._time)
        self.scheduler = Scheduler(config, clock=self._time, connector=self._transfers.connector)
        numbers = [work.number for work in self._works]
        self._account = Account(self._time, self.scheduler, numbers)
        self.scheduler.journal = self._account
        self._runner = SimulatedRunner(workload, self._requests, self._clock.random)
        self._clients = SimulatedClients(workload, self._clock.random if seed else None)
        self._depth = config.scheduler.max_concurrent_batches
        self._events: Timeline[_Event] = Timeline()
        self._pending: deque[_Flight] = deque()
        self._num_to_finish = sum(work.is_finished for work in self._works)
        self._largest = [0.0] * NUM_FEATURES
        self._num_steps = 0
        self._finish_of_last = 0

    def run(self, max_steps: int | None) -> Outcome:
        """Replays to the end."""
        for time_ns, index in self._clients.first_arrivals():
            self._events.at(time_ns, ("arrive", index))
        for act in self._workload.acts:
            self._events.at(act.ts_ns, act)
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
            goes_on = num_tokens or self._pending or self.scheduler.has_received_kv
            num_empty = 0 if goes_on else num_empty + 1
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

    # --------------------------------------------------------------------------------------- begin

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

    def _wait(self) -> bool:
        """Lets time pass to the next event; False where there is none."""
        due = self._next_due()
        if due is not None:
            self.now = max(self.now, due)
        return due is not None

    def _next_due(self) -> int | None:
        due = (self._events.next_ns, self._transfers.next_ns)
        return min((each for each in due if each is not None), default=None)

    def _until_something(self, most_ns: int) -> int:
        """Returns how long an engine that can do nothing waits: something that comes wakes it."""
        due = self._next_due()
        return most_ns if due is None else max(0, min(most_ns, due - self.now))

    def _let_come(self) -> None:
        """Takes in what is due; an idle engine takes a moment from there to its step."""
        was_idle = not self._pending and not self.scheduler.has_requests()
        self._take_due()
        if was_idle and self.scheduler.has_requests():
            self.now += self._workload.step_times.wake_ns
            self._take_due()

    def _take_due(self) -> None:
        for event in self._events.take(self.now):
            match event:
                case ("arrive", index):
                    self._add(index)
                case ("abort", index):
                    self._abort(index)
                case ("ready", index):
                    self.scheduler.unblock(_name(index))
                case Act():
                    self._act(event)

    def _act(self, act: Act) -> None:
        if act.kind == "pause":
            self.scheduler.set_pause(PauseState[act.state])
        else:
            self.scheduler.reset_prefix_cache(reset_running=act.kind == "reset_running")

    def _add(self, index: int) -> None:
        work = self._works[index]
        tokens = self._runner.text_of(work)
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
        self._runner.add(index, tokens)
        self._requests[index] = request
        self.scheduler.add_request(request)
        request.times.arrived = self.now
        if blocked is not None:
            self._events.at(self.now + work.blocked_ns, ("ready", index))
        if work.aborted_after_ns is not None:
            self._events.at(max(0, self.now + work.aborted_after_ns), ("abort", index))

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
            self._transfers.begin(output)
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
            return self._until_something(self._workload.step_times.empty_ns)
        features = features_of(self.scheduler, output)
        largest = self._largest
        for index, value in enumerate(features):
            if value > largest[index]:
                largest[index] = value
        return self._clock.draw(features, self.now)

    def _finish_oldest(self, *, is_timed: bool) -> None:
        """Lets the oldest step take its time, and takes in its tokens."""
        output, sampled, duration = self._pending.popleft()
        gap = min(self._workload.step_times.gap_ns, duration // 2) if is_timed else 0
        end = max(self._finish_of_last, self.now) + duration
        self.now = max(self.now, end - gap)
        result = self._transfers.report(self._runner.result_of(output, sampled))
        results = self.scheduler.update_from_output(output, result)
        drafts = self._runner.proposed(output, sampled)
        if drafts:
            self.scheduler.update_draft_token_ids(drafts)
        self.now = max(self.now, end)
        self._finish_of_last = self.now
        told = results.others
        if results.decodes is not None and results.decodes.told:
            told = told + [each for each in results.decodes.told.values() if each is not None]
        for each in told:
            if each.finish_reason is not None:
                index = int(each.request_id)
                self._end(index, self._requests[index], is_answered=True)

    def _end(self, index: int, request: Request, *, is_answered: bool) -> None:
        del self._requests[index]
        self._runner.drop(index)
        work = self._works[index]
        self._num_to_finish -= work.is_finished
        self._account.ended(
            request,
            is_finish=work.is_finished,
            is_answered=is_answered and work.is_finished and work.arrived_ns >= 0,
            num_outputs=request.num_output_tokens - work.num_outputs_before,
        )
        self._transfers.ended(request)
        following = self._clients.next_arrival(self.now)
        if following is not None:
            time_ns, index = following
            self._events.at(time_ns, ("arrive", index))

    def _is_over(self) -> bool:
        """Whether all that ended in the record has ended, and the rest had as much time."""
        if self._num_to_finish > 0:
            return False
        return not self._requests or self.now >= self._workload.duration_ns

    def _time(self) -> int:
        return self.now


def _name(index: int) -> str:
    return str(index)
