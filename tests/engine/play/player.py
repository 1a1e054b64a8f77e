"""Plays a scenario: one step after the other, without any choice of its own.

Synchronous: every step is decided, executed and taken in. Asynchronous: two steps are in flight.
When the horizon is reached everything outside comes to its end, and the run goes on until nobody
is left, or nobody can move.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.request import Request
from engine.scheduler import (
    ModelRunnerOutput,
    PauseState,
    RequestOutput,
    Scheduler,
    SchedulerOutput,
)
from engine.session import Session, SessionInput
from telemetry.recorder import ListRecorder
from telemetry.vocabulary import FinishReason, SkipReason
from tests.engine.play.connector import ScriptedConnector, Transfers
from tests.engine.play.rows import decisions
from tests.engine.play.scenario import HORIZON, Disturbance, RequestPlan, Scenario
from tests.engine.play.tokens import EOS, REFUSED, RefusingGrammar, output, sampling_of

IDLE_STEPS = 12
"""Steps without any progress after which nobody is taken to move again."""
MOST_STEPS = 3000

_PAUSES = {
    "pause_new": PauseState.PAUSED_NEW,
    "pause_all": PauseState.PAUSED_ALL,
    "unpause": PauseState.UNPAUSED,
}


@dataclass(slots=True)
class InFlight:
    """A step that has been decided: its output, and who reaches his newest token in it."""

    output: SchedulerOutput
    samples: list[str]


@dataclass(slots=True)
class Player:
    """A run of a scenario; the watchers see every step when it is decided and when it is executed.

    Args:
        looks: asks for everything and checks the integrity after every step. If not, outputs are
            read when the run is over, and decodes' tokens are given as columns.
    """

    scenario: Scenario
    array_path: bool = True
    looks: bool = True
    watchers: tuple[Any, ...] = ()
    scheduler: Scheduler = field(init=False)
    recorder: ListRecorder = field(default_factory=ListRecorder)
    requests: dict[str, Request] = field(default_factory=dict)
    results: list[RequestOutput] = field(default_factory=list)
    trace: list[Any] = field(default_factory=list)
    """What was decided, given back and left behind in each step."""
    num_outputs: Counter[str] = field(default_factory=Counter)
    aborted: set[str] = field(default_factory=set)
    local_hits: dict[str, int] = field(default_factory=dict)
    """Prefix hits of the asynchronous loads that were started."""
    stuck: frozenset[str] = frozenset()
    """Who could not move any more, and was aborted for it."""
    _plans: dict[str, RequestPlan] = field(init=False)
    _transfers: Transfers = field(init=False)
    _in_flight: deque[InFlight] = field(default_factory=deque)
    _num_verified: Counter[str] = field(default_factory=Counter)
    _step: int = 0

    def __post_init__(self) -> None:
        self._plans = {f"r{n}": plan for n, plan in enumerate(self.scenario.requests)}
        self._transfers = Transfers(
            {name: plan.transfer for name, plan in self._plans.items()},
            self.scenario.config.cache.kv_groups[0].block_size,
        )
        has_connector = self.scenario.config.kv_connector is not None
        ticks = itertools.count(1_000)
        self.scheduler = Scheduler(
            self.scenario.config,
            recorder=self.recorder,
            clock=lambda: next(ticks),
            connector=ScriptedConnector(self._plans) if has_connector else None,
            array_path=self.array_path,
        )

    # ------------------------------------------------------------------------------------- the run

    def run(self) -> Player:
        """Plays the scenario to its end."""
        idle = 0
        while self._step <= HORIZON or self.scheduler.has_requests() or self._in_flight:
            moved = self.step()
            idle = 0 if moved or self._step <= HORIZON or self._transfers.under_way else idle + 1
            if idle > IDLE_STEPS:
                self._give_up()
                idle = 0
            assert self._step < MOST_STEPS, "the run does not end"
        self.scheduler.check_integrity()
        if not self.looks:
            self.trace = [decisions(t) if isinstance(t, SchedulerOutput) else t for t in self.trace]
        return self

    def step(self) -> bool:
        """Plays one step; returns whether anything was scheduled or came back."""
        throttle = self._happen(in_mid_step=False)
        self._arrive()
        moved = False
        if self.scheduler.has_requests() or not self._in_flight:
            moved = self._schedule(throttle)
        self._happen(in_mid_step=True)
        if self._is_due():
            moved = bool(self._update()) or moved
        if self.looks:
            self.scheduler.check_integrity()
        self._step += 1
        return moved

    def _is_due(self) -> bool:
        """Whether the oldest step in flight is taken in now."""
        if not self._in_flight:
            return False
        if len(self._in_flight) >= self.scenario.config.scheduler.max_concurrent_batches:
            return True
        newest = self._in_flight[-1].output
        return not newest.num_scheduled_tokens and not self.scheduler.has_requests()

    def _schedule(self, throttle: bool) -> bool:
        output = self.scheduler.schedule(throttle_prefills=throttle)
        for watcher in self.watchers:
            watcher.scheduled(self, output)
        self._transfers.scheduled(output)
        self.local_hits |= {name: local for name, (_, local, _) in output.kv_loads_started.items()}
        samples = [
            name
            for name in output.num_scheduled_tokens
            if not self.scheduler.requests[name].is_prefill_chunk
        ]
        self._in_flight.append(InFlight(output, samples))
        self.trace.append(decisions(output) | self.state() if self.looks else output)
        return bool(output.num_scheduled_tokens or output.preempted_in_order)

    def _update(self) -> list[RequestOutput]:
        done = self._in_flight.popleft()
        reports = self._transfers.due(done.output.step, self.scheduler)
        for watcher in self.watchers:
            watcher.executed(self, done.output, reports)
        tokens = self._sample_all(done)
        results = list(self.scheduler.update_from_output(done.output, replace(tokens, **reports)))
        for result in results:
            self.num_outputs[result.request_id] += len(result.new_token_ids)
        self.results += results
        self.trace.append({"results": results} | self.state())
        if not self.scenario.config.scheduler.async_scheduling:
            self._draft(done.samples)
        return results

    # -------------------------------------------------------------------------------------- tokens

    def _sample_all(self, done: InFlight) -> ModelRunnerOutput:
        """Returns the tokens of a step; where nobody looks, those of its decodes as a column."""
        decodes = None if self.looks else done.output.decodes
        in_column = [] if decodes is None else decodes.request_ids
        column = [self._sample(name, done.output)[0] for name in in_column]
        others = [name for name in done.samples if name not in in_column]
        return ModelRunnerOutput(
            sampled_token_ids={name: self._sample(name, done.output) for name in others},
            decode_token_ids=None if decodes is None else np.array(column, dtype=np.int32),
        )

    def _sample(self, name: str, output: SchedulerOutput) -> list[int]:
        """Returns a request's tokens of a step: the drafts that are right, and one more."""
        drafts = output.scheduled_spec_decode_tokens.get(name, [])
        if drafts and drafts[0] == -1 and self.scenario.config.scheduler.async_scheduling:
            script = self._plans[name].drafts
            num_right = min(len(drafts), script[self._num_verified[name] % len(script)][1])
            self._num_verified[name] += 1
        else:
            future = self._future(name, len(drafts))
            pairs = zip(drafts, future, strict=True)
            num_right = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        return self._future(name, num_right + 1)

    def _future(self, name: str, count: int) -> list[int]:
        """Returns the outputs that the model would give a request next."""
        eos_at, first = self._plans[name].eos_at, self.num_outputs[name]
        number = self.requests[name].number
        return [EOS if n == eos_at else output(number, n) for n in range(first, first + count)]

    def _draft(self, names: list[str]) -> None:
        if not self.scenario.config.speculation.num_speculative_tokens:
            return
        drafts = {}
        for name in names:
            script = self._plans[name].drafts
            count, num_right = script[self._num_verified[name] % len(script)]
            self._num_verified[name] += 1
            drafts[name] = self._future(name, num_right) + [REFUSED] * (count - num_right)
        self.scheduler.update_draft_token_ids(drafts)

    # ---------------------------------------------------------------------------- what happens

    def _arrive(self) -> None:
        """Lets requests, grammars and sessions' input come that are due."""
        for number, (name, plan) in enumerate(self._plans.items()):
            if plan.arrives == self._step:
                self._add(number, name, plan)
            since = self._step - plan.arrives
            if plan.grammar is not None and since == plan.grammar[0]:
                failure = None if plan.grammar[1] else SkipReason.grammar_failed
                self.scheduler.unblock(name, failure)
            if plan.pieces is not None and name in self.scheduler.requests:
                self._continue(name, plan, since)

    def _add(self, number: int, name: str, plan: RequestPlan) -> None:
        own = 100_000 * (number + 1)
        request = Request(
            name,
            number=number,
            prompt_token_ids=[*range(10, 10 + plan.num_shared), *range(own, own + plan.num_own)],
            sampling=sampling_of(number, plan),
            arrival_time=plan.arrival_time,
            priority=plan.priority,
            eos_token_id=EOS,
            reads_prefix_cache=plan.reads_cache,
            adapter=plan.adapter,
            cache_salt=plan.salt,
            session=None if plan.pieces is None else Session(),
            encoder_items=plan.items,
            grammar=None if plan.grammar is None else RefusingGrammar(),
            blocked_by=None if plan.grammar is None else SkipReason.grammar_compiling,
        )
        self.requests[name] = request
        self.scheduler.add_request(request)

    def _continue(self, name: str, plan: RequestPlan, since: int) -> None:
        """Gives a session its input of this step, and closes it behind the last."""
        pieces = plan.pieces or ()
        for index, (after, num_tokens, max_tokens) in enumerate(pieces):
            if after == since:
                start = 100_000 * (self.requests[name].number + 1) + 10_000 * (index + 1)
                piece = SessionInput(
                    range(start, start + num_tokens), max_tokens, plan.arrival_time + after
                )
                self.scheduler.add_session_input(name, piece)
        if since == (pieces[-1][0] if pieces else 3):
            self._expect_abort(name)
            self.scheduler.close_session(name)

    def _happen(self, *, in_mid_step: bool) -> bool:
        """Does what the scenario says; returns whether prefills are throttled in this step."""
        if self._step == HORIZON + 1:
            self.scheduler.set_pause(PauseState.UNPAUSED)
        throttle = False
        for event in self.scenario.disturbances:
            if event.step == self._step and event.in_mid_step is in_mid_step:
                throttle |= event.kind == "throttle"
                self._disturb(event)
        return throttle

    def _disturb(self, event: Disturbance) -> None:
        match event.kind:
            case "abort":
                self.abort(f"r{event.target % len(self._plans)}")
            case "pause_new" | "pause_all" | "unpause":
                self.scheduler.set_pause(_PAUSES[event.kind])
            case "reset_prefix_cache" | "reset_running":
                reset_running = event.kind == "reset_running"
                done = self.scheduler.reset_prefix_cache(reset_running=reset_running)
                self.trace.append({"reset": done} | self.state())
            case "jump":
                self._jump(f"r{event.target % len(self._plans)}")
            case "reset_encoder_cache":
                # Only between steps: it forgets who refers to what is on its way.
                if not self.scheduler.running:
                    self.scheduler.reset_encoder_cache()

    def _jump(self, name: str) -> None:
        """Tells a request its next two outputs, if it can be told now."""
        if name not in self.scheduler.requests:
            return
        try:
            result = self.scheduler.append_known_tokens(name, self._future(name, 2))
        except ValueError:
            return  # a token is on its way, or it is a session
        self.num_outputs[name] += len(result.new_token_ids)
        self.results.append(result)
        self.trace.append({"jumped": result} | self.state())

    def abort(self, name: str) -> None:
        """Lets a request's client leave."""
        if name in self.scheduler.requests:
            self.aborted.add(name)
            self.scheduler.finish_requests([name], FinishReason.abort_client)

    def _expect_abort(self, name: str) -> None:
        """A session that is closed between its turns ends without a result."""
        if self.requests[name].blocked_by is SkipReason.streaming_input:
            self.aborted.add(name)

    def _give_up(self) -> None:
        """Nobody can move: notes who, and lets them go."""
        self.stuck |= frozenset(self.scheduler.requests)
        for name in list(self.scheduler.requests):
            self.abort(name)

    # ------------------------------------------------------------------------------------ the trace

    def state(self) -> dict[str, Any]:
        """Returns who stands where, with what progress; nothing where nobody looks."""
        if not self.looks:
            return {}
        scheduler = self.scheduler
        scheduler.settle()
        return {
            "running": [request.request_id for request in scheduler.running],
            "computed": [request.num_computed_tokens for request in scheduler.running],
            "known": [request.num_tokens for request in scheduler.running],
            "waiting": [request.request_id for request in scheduler.waiting],
            "holding": [request.request_id for request in scheduler.kv_holding_waiting],
            "skipped": sorted(request.request_id for request in scheduler.skipped),
            "free": scheduler.kv.pool.num_free,
            "free_cached": scheduler.kv.pool.num_free_cached,
            "num_preemptions": scheduler.num_preemptions,
        }
