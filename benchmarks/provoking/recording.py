"""A simulated engine whose log is what a real one's would be: for scenarios to run and record.

    engine = Recording(config, attempt.random)
    engine.send(poisson(random, lambda at: Call(at=at), rate=4, start=1, end=60))
    engine.run()                      # until all have ended, or `until=` so many seconds have gone
    return log_of(engine)             # of several engines: log_of(first, second)

Real are the scheduler, the KV pool, the prefix cache, the journal and, where one is given, the
connector. The model is scripted, and the clock moves only as `Pace` says a step takes. The log has
what the collector would have written: the engine's row, a heartbeat a second, steps and events; the
dense rows (`step_requests`) with `dense=True`, which takes a while where many run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from zlib import crc32

from benchmarks.provoking.connector import SimulatedConnector
from benchmarks.provoking.drafting import DraftingRunner
from benchmarks.provoking.pace import Pace
from benchmarks.provoking.scraping import Scrapes, scraped_rows
from benchmarks.provoking.traffic import Call
from diagnose.reading import NS, QueryLog
from engine.admission import complaint_about
from engine.config import EngineConfig
from engine.connectors import ECConnector
from engine.connectors.worker import KVTransferWorker
from engine.identity import DeviceMemory, LifeEvents, describe, introduce
from engine.request import Request, RequestTimes
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler, SchedulerOutput
from engine.scheduler.output import ModelRunnerOutput, RequestOutput
from telemetry.log_records import HeartbeatRow
from telemetry.recorder import ListRecorder
from telemetry.records import EngineRow, Event, RequestArrived, RequestFinished
from telemetry.vocabulary import EventKind, FinishReason, Phase, SkipReason
from tests.diagnose import logs
from tests.telemetry.log_builder import START, LogBuilder

STUCK_SECONDS = 0.05
"""Pause between two steps when requests wait and none can be scheduled, as the engine makes it."""
MOST_OWN_TOKENS = 1 << 15
"""Own tokens of a prompt, at most: longer ones would begin to repeat those of the next."""
READ_NS = 1_000
"""The clock moves so far each time it is read: no two moments are equal."""


@dataclass(slots=True)
class Clock:
    """The run's clock, in ns since the Unix epoch."""

    now: int = START

    def __call__(self) -> int:
        self.now += READ_NS
        return self.now


@dataclass(frozen=True, slots=True)
class TextGrammar:
    """A grammar that takes all."""

    key: str

    def accepted_prefix(self, token_ids: list[int]) -> list[int]:
        return token_ids


@dataclass(slots=True)
class Tape(ListRecorder):
    """Keeps the rows, and where the step loop is."""

    clock: Clock = field(default_factory=Clock)
    phase: tuple[int, Phase, int] = (0, Phase.idle, START)
    """Step, phase, since when."""

    def enter_phase(self, step: int, phase: Phase) -> None:
        self.phase = (step, phase, self.clock.now)


OnEnd = Callable[["Recording", int], Call | None]
"""What follows on a request, given its number, once it has ended; `at` is counted from then."""


class Recording:
    """One engine start on a clock of its own, recorded.

    Args:
        random: the source of chance; lengths of steps vary by it.
        pace: how long steps take.
        engine: its number in the log.
        dp_rank: its rank among the engines of a service.
        started: seconds after the first engine of the log at which this one starts.
        connector: KV connector on the simulated clock.
        transfers: or a real one's worker (`engine.connectors.building.build_connector`); its
            threads are waited for after each step, so its faults may not delay.
        ec_connector: connector of encoder outputs.
        num_accepted: drafts of a request that turn out to be right in a step, given their number;
            None without speculation. Drafts are proposed in every step.
        dense: whether to record who got what in each step.
        is_ready: whether it comes up at all.
        array_path: whether decodes are columns; off for a fault that is put into the ordinary path.
        memory: what the record says of the device's memory.
        columns: of the engine's row, where they differ from what it would say itself.
        on_end: what follows on a request that has ended (closed-loop clients).
        on_step: is called with each result before the scheduler gets it; may change it.
    """

    def __init__(
        self,
        config: EngineConfig,
        random: Random,
        *,
        pace: Pace | None = None,
        engine: int = 1,
        dp_rank: int = 0,
        started: float = 0.0,
        connector: SimulatedConnector | None = None,
        transfers: KVTransferWorker | None = None,
        ec_connector: ECConnector | None = None,
        num_accepted: Callable[[str, int], int] | None = None,
        dense: bool = False,
        is_ready: bool = True,
        array_path: bool = True,
        memory: DeviceMemory | None = None,
        columns: dict[str, object] | None = None,
        on_end: OnEnd | None = None,
        on_step: Callable[[SchedulerOutput, ModelRunnerOutput], ModelRunnerOutput] | None = None,
    ) -> None:
        self.config = config
        self.random = random
        self.pace = pace or Pace()
        self.engine = engine
        self.dp_rank = dp_rank
        self.started_ts = START + int(started * NS)
        self.clock = Clock(self.started_ts)
        self.tape = Tape(clock=self.clock, phase=(0, Phase.idle, self.started_ts))
        self.heartbeats: list[HeartbeatRow] = []
        self.num_requests = 0
        self._dense = dense
        self._connector, self._transfers = connector, transfers
        self._on_end, self._on_step = on_end, on_step
        self.scheduler = Scheduler(
            config,
            recorder=self.tape,
            clock=self.clock,
            connector=connector if transfers is None else transfers.connector,
            ec_connector=ec_connector,
            array_path=array_path,
        )
        num_drafts = config.speculation.num_speculative_tokens if num_accepted else 0
        self.runner = DraftingRunner(num_drafts, num_accepted)
        self.runner.transfers = transfers
        self.scrapes = Scrapes(config, self.scheduler, self.started_ts)
        self._due: list[tuple[int, int, Call | Callable[[], None]]] = []
        """What is going to happen outside the engine: when, in which order, what."""
        self._num_due = 0
        self._in_flight: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        self._next_beat = self.started_ts + NS
        self._describe(dp_rank, memory or DeviceMemory(), columns or {})
        if is_ready:
            LifeEvents(self.tape, self.clock).started()

    # ------------------------------------------------------------------------------ from outside

    @property
    def seconds(self) -> float:
        """Time since its start."""
        return (self.clock.now - self.started_ts) / NS

    def send(self, calls: Iterable[Call]) -> None:
        """Notes requests that are going to come."""
        for call in calls:
            self._at(call.at, call)

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Notes what is going to happen then: `engine.at(30, engine.scheduler.reset_...)`."""
        self._at(seconds, act)

    def run(self, until: float | None = None) -> None:
        """Steps until nothing is left to come or to do, or until so many seconds have gone."""
        end = None if until is None else self.started_ts + int(until * NS)
        while end is None or self.clock.now < end:
            self._let_come()
            if self.scheduler.has_requests():
                self.step()
            elif self._in_flight:
                self._take_in()
            elif self._due:
                self.rest(self._due[0][0] - self.clock.now)
            else:
                break
        if end is not None and self.clock.now < end:
            self.rest(end - self.clock.now)

    def step(self) -> None:
        """Decides a step, and takes in the oldest one in flight if no more may be."""
        output = self.scheduler.schedule()
        self.tape.enter_phase(output.step, Phase.forward)
        self._in_flight.append((output, self.runner.execute(output)))
        if len(self._in_flight) >= self.config.scheduler.max_concurrent_batches:
            self._take_in()
        elif not output.total_num_scheduled_tokens:
            while self._in_flight:
                self._take_in()

    def hang(self, seconds: float) -> None:
        """Decides a step that is never taken in; the heartbeat goes on meanwhile."""
        output = self.scheduler.schedule()
        self.tape.enter_phase(output.step, Phase.forward)
        self.pass_ns(int(seconds * NS))

    def rest(self, ns: int) -> None:
        """Lets time pass with nothing to do."""
        self.tape.enter_phase(self.scheduler.num_steps, Phase.idle)
        self.pass_ns(ns)

    def pass_ns(self, ns: int) -> None:
        """Lets time pass; the heart beats once a second."""
        until = self.clock.now + max(0, ns)
        while self._next_beat <= until:
            self._beat(self._next_beat)
            self._next_beat += NS
        self.scrapes.pass_until(until)
        self.clock.now = until

    def stop(self) -> None:
        """Ends the engine in good order: whatever is open is aborted."""
        self.scheduler.finish_requests(list(self.scheduler.requests), FinishReason.abort_api)
        self.scheduler.journal.flush()
        why, step = "its time is over", self.scheduler.num_steps
        LifeEvents(self.tape, self.clock).stopped(why, step=step)

    def die(self) -> None:
        """Ends the engine as a kill does; the collector notes it."""
        self.scheduler.journal.flush()
        step = self.tape.phase[0]
        died = Event(kind=EventKind.engine_died, step=step, ts=self.clock(), text="killed")
        self.tape.record_events([died])

    def rows(self) -> LogBuilder:
        """Returns its rows as they stand in the log now, with a last heartbeat."""
        self.scheduler.journal.flush()
        if not self.heartbeats or self.heartbeats[-1].ts < self.clock.now:
            self._beat(self.clock.now)
        if not self._dense:
            self.tape.step_requests.clear()
        builder = LogBuilder.of_recorder(self.tape, self.engine)
        for beat in self.heartbeats:
            builder._add("heartbeats", _values(beat))
        return builder

    # ------------------------------------------------------------------------------------ in detail

    def _describe(self, rank: int, memory: DeviceMemory, columns: dict[str, object]) -> None:
        row: EngineRow = introduce(started_ts=self.started_ts, model="scripted", version=None)
        row = replace(describe(row, self.config, device="cpu", memory=memory), dp_rank=rank)
        row = replace(row, host="host-1", pid=self.engine, boot_id="boot", host_cpu_count=8)
        self.tape.describe_engine(replace(row, **columns))  # type: ignore[arg-type]

    def _at(self, seconds: float, what: Call | Callable[[], None]) -> None:
        heappush(self._due, (self.started_ts + int(seconds * NS), self._num_due, what))
        self._num_due += 1

    def _let_come(self) -> None:
        """Does what is due."""
        while self._due and self._due[0][0] <= self.clock.now:
            due, _, what = heappop(self._due)
            if isinstance(what, Call):
                self._arrive(what, due)
            else:
                what()

    def _arrive(self, call: Call, due: int) -> None:
        number = self.num_requests
        self.num_requests += 1
        name = f"req-{number}"
        request = self._request(call, number, name, due)
        complaint = complaint_about(self.config, request.num_prompt_tokens, call.max_tokens)
        if complaint is not None:
            self._refuse(request, complaint)
            return
        self.scrapes.arrived(request)
        self.scheduler.add_request(request)
        if 0 < call.blocked_seconds < float("inf"):
            self._at(self.seconds + call.blocked_seconds, lambda: self.scheduler.unblock(name))
        if call.gone_after_seconds is not None:
            self._at(self.seconds + call.gone_after_seconds, lambda: self.hang_up(name))

    def _refuse(self, request: Request, complaint: str) -> None:
        """Tells the record of a request that the API does not let in."""
        where = {"step": self.scheduler.num_steps, "ts": self.clock(), "request": request.number}
        arrived = RequestArrived(
            **where,
            request_id=request.request_id,
            num_prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.sampling.max_tokens,
            priority=request.priority,
            arrival_time=request.arrival_time,
        )
        refused = RequestFinished(**where, reason=FinishReason.refused, text=complaint)
        self.tape.record_events([arrived, refused])

    def hang_up(self, request_id: str) -> None:
        """A client leaves."""
        request = self.scheduler.requests.get(request_id)
        if request is None:
            return
        gone = Event(kind=EventKind.client_gone, step=self.scheduler.num_steps, ts=self.clock())
        self.tape.record_events([replace(gone, request=request.number)])
        self.scheduler.finish_requests([request_id], FinishReason.abort_client)

    def _request(self, call: Call, number: int, name: str, due: int) -> Request:
        now = self.clock()
        times = RequestTimes(arrived=now)
        if call.frontend_seconds is not None:
            times.received = now - int(call.frontend_seconds * NS)
            times.tokenized = now - int(call.frontend_seconds * NS / 10)
        return Request(
            request_id=name,
            number=number,
            prompt_token_ids=_prompt(call, number),
            sampling=SamplingParams(max_tokens=call.max_tokens, ignore_eos=True),
            arrival_time=due / NS,
            priority=call.priority,
            adapter=call.adapter,
            cache_salt=call.cache_salt,
            encoder_items=call.encoder_items,
            grammar=None if call.grammar is None else TextGrammar(call.grammar),
            blocked_by=SkipReason.grammar_compiling if call.blocked_seconds else None,
            times=times,
        )

    def _take_in(self) -> None:
        """A step has been executed: its time has passed, its tokens are taken in."""
        output, result = self._in_flight.popleft()
        num_tokens = output.total_num_scheduled_tokens
        drafts = self.runner.num_drafts > 0
        pace, took = self.pace, 0
        if num_tokens:
            took = pace.step_ns(output, self.scheduler, self.random, drafts=drafts)
        self.pass_ns(took)
        result = replace(result, **pace.phases(took, drafts=drafts))
        if self._connector is not None:
            result = self._connector.report(output, result, self.clock.now)
        if self._on_step is not None:
            result = self._on_step(output, result)
        results = list(self.scheduler.update_from_output(output, result))
        self.scrapes.stepped(output, result, results, self.clock.now)
        if result.draft_token_ids:
            self.scheduler.update_draft_token_ids(result.draft_token_ids)
        if self._transfers is not None:
            self._transfers.settle(60.0)
        self._follow_up(results)
        if not num_tokens and not results:
            self._wait_stuck()

    def _follow_up(self, results: Iterable[RequestOutput]) -> None:
        for result in results:
            if result.finish_reason is not None and self._on_end is not None:
                number = int(result.request_id.removeprefix("req-"))
                call = self._on_end(self, number)
                if call is not None:
                    self._at(self.seconds + call.at, call)

    def _wait_stuck(self) -> None:
        """Waits a moment: nothing can be done, but for what comes."""
        pause = int(STUCK_SECONDS * NS)
        if self._due:
            pause = min(pause, max(NS // 1000, self._due[0][0] - self.clock.now))
        self.pass_ns(pause)

    def _beat(self, ts: int) -> None:
        step, phase, since = self.tape.phase
        self.heartbeats.append(
            HeartbeatRow(
                ts=ts,
                step=step,
                phase=phase,
                phase_age_ns=max(0, ts - since),
                num_steps=len(self.tape.steps),
                num_events=len(self.tape.events),
                num_preemptions=self.scheduler.num_preemptions,
                num_recorder_errors=0,
            )
        )


class RecordedLog(logs.MemoryLog):
    """The log of engines, and what is known of them without it."""

    def __init__(self, engines: Sequence[Recording]) -> None:
        super().__init__([engine.rows() for engine in engines])
        self._engines = engines

    def scraped(self, **flags: object) -> QueryLog:
        """Returns the log of the engines' metrics pages alone; starts of a rank are one server.

        Args:
            flags: launch flags that an operator knows besides those of the settings.
        """
        servers: dict[int, list[Scrapes]] = {}
        for engine in self._engines:
            servers.setdefault(engine.dp_rank, []).append(engine.scrapes)
        named = ((f"rank-{rank}", starts) for rank, starts in sorted(servers.items()))
        return logs.log_of(
            *(rows for name, starts in named for rows in scraped_rows(name, starts, flags))
        )


def log_of(*engines: Recording) -> RecordedLog:
    """Returns the log of one engine start or of several, in memory."""
    return RecordedLog(engines)


def _prompt(call: Call, number: int) -> list[int]:
    """Returns the prompt's tokens: those that it shares, with its own in front and behind."""
    front = min(call.num_tokens_in_front, call.num_prompt_tokens)
    most = call.num_prompt_tokens - front
    shared = min(call.num_shared_tokens if call.shared is not None else 0, most)
    first = crc32((call.shared or "").encode()) % (1 << 30)
    own = (1 << 30) + number * MOST_OWN_TOKENS % ((1 << 30) - MOST_OWN_TOKENS)
    behind = own + front + most - shared
    return [*range(own, own + front), *range(first, first + shared), *range(own + front, behind)]


def _values(row: object) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__slots__}  # type: ignore[attr-defined]
