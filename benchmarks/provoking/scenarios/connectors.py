"""KV connectors that hang, fail, cost too much or let go too early; and such as are only slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from benchmarks.provoking.connector import SimulatedConnector
from benchmarks.provoking.recording import Recording, log_of
from benchmarks.provoking.scenario import Attempt, Scenario
from benchmarks.provoking.settings import settings
from benchmarks.provoking.traffic import Call, about, burst, poisson
from diagnose.reading import QueryLog
from engine.config import EngineConfig, KVConnectorConfig
from engine.connectors.building import build_connector
from engine.connectors.faults import Fault
from engine.connectors.no_blocks import NoBlocks
from engine.connectors.settings import KVTransferConfig
from engine.request import Request
from engine.scheduler import kv_loads, waiting_scan
from engine.scheduler.plan import AdmissionStop, StepPlan
from engine.scheduler.state import SchedulerState
from telemetry.vocabulary import StopReason

STUCK = (
    "remote-kv-wait-stuck",
    "connector-parked-deadlock",
    "connector-save-stuck",
    "connector-ack-stuck",
    "deferred-slot-exhaustion",
)
"""Rules of a connector in which something does not move."""
CALM = (*STUCK, "kv-load-failure", "pd-producer-lease-expiry", "kv-block-leak", "worker-hang")
"""Rules that a connector which does its work must not wake."""


def _config(num_blocks: int = 2000, **connector: Any) -> EngineConfig:
    """Returns the settings of an engine with a connector and, unless told otherwise, room."""
    own = {"connector": "HostMemoryConnector", "role": "kv_both"} | connector
    return settings(num_blocks=num_blocks, kv_connector=KVConnectorConfig(**own))


def _traffic(
    attempt: Attempt, random: Random, *, rate: float, end: float, num_prefixes: int | None = None
) -> list[Call]:
    """Returns requests; `num_prefixes` beginnings are most of their prompts, else each is new."""

    def call(at: float) -> Call:
        length = about(random, 400)
        prefix = None if num_prefixes is None else f"prefix {random.randrange(num_prefixes)}"
        return Call(
            at=at,
            num_prompt_tokens=length,
            max_tokens=about(random, 60),
            shared=prefix,
            num_shared_tokens=round(length * 0.8),
        )

    return poisson(random, call, rate=rate * attempt.load, start=0.5, end=end)


def most_of_it(request: Request) -> int:
    """A connector that has most of each prompt, in whole blocks."""
    return request.num_prompt_tokens * 7 // 10 // 16 * 16


# ------------------------------------------------------------------------------------------- loads


def producer_that_dies(attempt: Attempt) -> QueryLog:
    """Loads come in time, until at one moment those of the moment and all later ones hang."""
    random = attempt.random
    died = random.uniform(20, 40)

    def seconds(request: Request) -> float | None:
        return None if engine.seconds > died else random.uniform(0.02, 0.2)

    connector = SimulatedConnector(num_tokens=most_of_it, load_seconds=seconds)
    engine = Recording(_config(), random, connector=connector)
    engine.send(_traffic(attempt, random, rate=1.5, end=died + 15))
    engine.run(until=died + random.uniform(160, 260))
    return log_of(engine)


def loads_that_get_lost(attempt: Attempt) -> QueryLog:
    """A share of the loads is never heard of again, one here and one there."""
    random = attempt.random
    lost = random.sample(range(40), random.randint(4, 9))

    def seconds(request: Request) -> float | None:
        return None if request.number % 40 in lost else random.uniform(0.02, 0.3)

    connector = SimulatedConnector(num_tokens=most_of_it, load_seconds=seconds)
    engine = Recording(_config(), random, connector=connector)
    engine.send(_traffic(attempt, random, rate=1.0, end=70))
    engine.run(until=random.uniform(200, 260))
    return log_of(engine)


def injected(*faults: str, policy: str = "recompute") -> Callable[[Attempt], QueryLog]:
    """Returns a run of the real store and its threads, with faults as `--inject` makes them.

    Requests come twice: the first time they are stored, the second they are to be loaded.
    """

    def run(attempt: Attempt) -> QueryLog:
        random = attempt.random
        transfer = KVTransferConfig(
            kv_connector="HostMemoryConnector",
            kv_role="kv_both",
            kv_load_failure_policy=policy,  # type: ignore[arg-type]
        )
        config = settings(num_blocks=2000, kv_connector=transfer.config())
        seeded = [Fault.parse(f"{each},seed={random.randrange(1000)}") for each in faults]
        worker = build_connector(transfer, seeded, config, NoBlocks(), dict)
        try:
            engine = Recording(config, random, transfers=worker)
            for start in (0, 25):
                calls = _traffic(attempt, random, rate=2.0, end=20, num_prefixes=16)
                engine.send([replace(call, at=call.at + start) for call in calls])
            engine.at(24, lambda: _forget(engine))
            engine.run(until=random.uniform(170, 200))
            return log_of(engine)
        finally:
            worker.close()

    return run


def _forget(engine: Recording) -> None:
    """Empties the local cache, so that what comes again has to be loaded."""
    engine.scheduler.reset_prefix_cache()


@dataclass(slots=True)
class Queue:
    """A tier that does one load after the other."""

    service_seconds: Callable[[Request], float]
    clock: Callable[[], float] = lambda: 0.0
    free_at: float = 0.0

    def seconds(self, request: Request) -> float:
        now = self.clock()
        self.free_at = max(now, self.free_at) + self.service_seconds(request)
        return self.free_at - now


def convoy(attempt: Attempt) -> QueryLog:
    """Loads go through a narrow tier one by one; computing would be quicker. All of them come."""
    random = attempt.random
    per_token = random.uniform(0.35e-3, 0.6e-3)
    queue = Queue(lambda request: per_token * most_of_it(request))
    connector = SimulatedConnector(num_tokens=most_of_it, load_seconds=queue.seconds)
    config = _config(4000)
    engine = Recording(config, random, connector=connector)
    queue.clock = lambda: engine.seconds

    def own(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 900), max_tokens=about(random, 60))

    for start in range(2, 62, 12):
        engine.send(burst(random, own, count=round(12 * attempt.load), at=start, within=1))
    engine.run()
    return log_of(engine)


def failing(policy: str) -> Callable[[Attempt], QueryLog]:
    """Returns a run in which loads fail from a moment on, as after a roll-out of the other side."""

    def run(attempt: Attempt) -> QueryLog:
        random = attempt.random
        since, share = random.uniform(15, 30), random.uniform(0.1, 0.9)
        connector = SimulatedConnector(
            num_tokens=most_of_it,
            load_seconds=lambda request: random.uniform(0.01, 0.05),
            fails=lambda request: engine.seconds > since and random.random() < share,
        )
        engine = Recording(_config(load_failure_policy=policy), random, connector=connector)
        engine.send(_traffic(attempt, random, rate=1.5, end=60))
        engine.run()
        return log_of(engine)

    return run


def loads_that_are_given_up(attempt: Attempt) -> QueryLog:
    """Some loads hang, and a time-out gives each of them up."""
    random = attempt.random
    share = random.uniform(0.1, 0.4)
    timeout = random.choice((2.0, 5.0, 10.0))

    def seconds(request: Request) -> float | None:
        return None if random.random() < share else random.uniform(0.01, 0.05)

    connector = SimulatedConnector(num_tokens=most_of_it, load_seconds=seconds)
    config = _config(load_timeout_seconds=timeout, lease_seconds=None)
    engine = Recording(config, random, connector=connector)
    engine.send(_traffic(attempt, random, rate=1.5, end=60))
    engine.run(until=100)
    return log_of(engine)


# ------------------------------------------------------------------------- blocks that loads hold


def loads_that_hold_each_other(attempt: Attempt) -> QueryLog:
    """So many loads begin at once that no request gets the blocks beyond its own.

    A fault of the scheduler, put back for the run: today's lets a load begin only if it leaves
    enough for those under way. `scheduler_reserve_full_isl` is off, which would hide it.
    """
    random = attempt.random
    length = random.randint(40, 60) * 16
    loaded = length * 7 // 10 // 16
    num_blocks = random.randint(6, 10) * loaded + random.randint(0, length // 16 - loaded - 1)
    connector = SimulatedConnector(
        num_tokens=most_of_it, load_seconds=lambda request: random.uniform(0.5, 2.0)
    )
    own = KVConnectorConfig(connector="HostMemoryConnector")
    config = settings(num_blocks=num_blocks, kv_connector=own, scheduler_reserve_full_isl=False)
    engine = Recording(config, random, connector=connector)

    def call(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=length, max_tokens=about(random, 80))

    engine.send([call(1.0 + 6 * number) for number in range(3)])
    count = round(14 * max(1.0, attempt.load))
    engine.send(burst(random, call, count=count, at=random.uniform(28, 36), within=0.01))
    with _loads_without_a_gate():
        engine.run(until=random.uniform(90, 150))
    return log_of(engine)


@contextmanager
def _loads_without_a_gate() -> Iterator[None]:
    """Lets every load begin for which there are blocks."""
    todays = kv_loads._blocks_reserved
    kv_loads._blocks_reserved = lambda state, newcomer: 0
    try:
        yield
    finally:
        kv_loads._blocks_reserved = todays


def set_aside_in_the_slots(attempt: Attempt) -> QueryLog:
    """Requests whose loads hang are counted as running, until they fill all slots.

    A fault of the scheduler, put back for the run: today's counts only those that run.
    """
    random = attempt.random
    hangs_from = random.uniform(8, 15)

    def seconds(request: Request) -> float | None:
        return None if engine.seconds > hangs_from else random.uniform(0.02, 0.1)

    connector = SimulatedConnector(num_tokens=most_of_it, load_seconds=seconds)
    own = KVConnectorConfig(connector="HostMemoryConnector")
    slots = random.choice((24, 32, 48))

    def long(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 200), max_tokens=20_000)

    limits = {"max_num_seqs": slots, "max_model_len": 32_768}
    config = settings(num_blocks=8000, kv_connector=own, **limits)
    engine = Recording(config, random, connector=connector)
    engine.send(burst(random, long, count=random.randint(0, 5), at=1))
    engine.send(_traffic(attempt, random, rate=slots / 12, end=60))
    with _slots_for_those_set_aside():
        engine.run(until=hangs_from + random.uniform(80, 110))
    return log_of(engine)


@contextmanager
def _slots_for_those_set_aside() -> Iterator[None]:
    """Counts requests that are set aside as if they ran."""
    todays = waiting_scan._limit

    def limit(state: SchedulerState, plan: StepPlan, num_sessions: int) -> AdmissionStop | None:
        head = state.head_queue().peek()
        taken = len(state.running) + len(state.kv_holding_waiting)
        if head is not None and taken >= state.limits.active_seqs:
            return AdmissionStop(StopReason.max_num_seqs, head)
        return todays(state, plan, num_sessions)

    waiting_scan._limit = limit
    try:
        yield
    finally:
        waiting_scan._limit = todays


# ---------------------------------------------------------------------------- blocks that are kept


def unacknowledged(attempt: Attempt) -> QueryLog:
    """The other side never says that it has the KV of some requests."""
    random = attempt.random
    share = random.uniform(0.05, 0.3)

    def seconds(request: Request) -> float | None:
        return None if random.random() < share else random.uniform(0.01, 0.5)

    connector = SimulatedConnector(saves=lambda request: True, ack_seconds=seconds)
    engine = Recording(_config(role="kv_producer"), random, connector=connector)
    engine.send(_traffic(attempt, random, rate=1.2, end=60))
    engine.run(until=random.uniform(200, 280))
    return log_of(engine)


def leases_that_expire(attempt: Attempt) -> QueryLog:
    """Some blocks are not fetched before their lease ends."""
    random = attempt.random
    share, lease = random.uniform(0.1, 0.5), random.choice((10.0, 20.0, 30.0))

    def seconds(request: Request) -> float | None:
        return None if random.random() < share else random.uniform(0.01, lease / 4)

    connector = SimulatedConnector(saves=lambda request: True, ack_seconds=seconds)
    config = _config(role="kv_producer", lease_seconds=lease)
    engine = Recording(config, random, connector=connector)
    engine.send(_traffic(attempt, random, rate=1.2, end=60))
    engine.run(until=110)
    return log_of(engine)


# ------------------------------------------------------------------------------ nothing is wrong


def loads_that_pay(attempt: Attempt) -> QueryLog:
    """Most of each prompt is loaded, several times as quickly as it would be computed."""
    random = attempt.random
    connector = SimulatedConnector(
        num_tokens=most_of_it,
        load_seconds=lambda request: most_of_it(request) * random.uniform(4e-6, 12e-6),
    )
    engine = Recording(_config(), random, connector=connector)

    def own(at: float) -> Call:
        return Call(at=at, num_prompt_tokens=about(random, 1600), max_tokens=about(random, 60))

    engine.send(poisson(random, own, rate=1.0 * attempt.load, start=0.5, end=60))
    engine.run()
    return log_of(engine)


def nothing_to_load(attempt: Attempt) -> QueryLog:
    """The connector is asked for each request, and has nothing."""
    random = attempt.random
    engine = Recording(_config(), random, connector=SimulatedConnector())
    engine.send(_traffic(attempt, random, rate=1.5, end=60))
    engine.run()
    return log_of(engine)


def late_but_there(attempt: Attempt) -> QueryLog:
    """Every load comes, one in forty only after ten seconds or more."""
    random = attempt.random

    late = random.randrange(40)

    def seconds(request: Request) -> float:
        is_late = request.number % 40 == late
        return random.uniform(10, 20) if is_late else random.uniform(0.001, 0.004)

    connector = SimulatedConnector(num_tokens=most_of_it, load_seconds=seconds)
    engine = Recording(_config(), random, connector=connector)
    engine.send(_traffic(attempt, random, rate=1.5, end=60))
    engine.run()
    return log_of(engine)


def acknowledged_late(attempt: Attempt) -> QueryLog:
    """Blocks of ended requests are kept for some seconds each, and all are given back."""
    random = attempt.random
    connector = SimulatedConnector(
        saves=lambda request: True, ack_seconds=lambda request: random.uniform(1, 20)
    )
    config = _config(role="kv_producer", lease_seconds=60.0)
    engine = Recording(config, random, connector=connector)
    engine.send(_traffic(attempt, random, rate=1.2, end=60))
    engine.run(until=120)
    return log_of(engine)


def _silent(*fires: str) -> tuple[str, ...]:
    """Returns the rules of a connector that have no business here."""
    return tuple(rule for rule in CALM if rule not in fires)


def _fault(
    expected: str, provoke: Callable[[Attempt], QueryLog], *also: str, name: str | None = None
) -> Scenario:
    """Returns a scenario in which, of a connector's rules, only these may fire."""
    return Scenario(
        name=name or provoke.__name__.replace("_", "-"),
        source="scripted",
        expected=expected,
        provoke=provoke,
        silent=_silent(expected, *also),
    )


def _healthy(provoke: Callable[[Attempt], QueryLog]) -> Scenario:
    return Scenario(
        name=provoke.__name__.replace("_", "-"),
        source="scripted",
        expected=None,
        provoke=provoke,
        silent=_silent(),
    )


SCENARIOS = (
    _fault("remote-kv-wait-stuck", producer_that_dies),
    _fault("remote-kv-wait-stuck", loads_that_get_lost),
    _fault("remote-kv-wait-stuck", injected("load=stall:p=0.5"), name="injected-load-stall"),
    _fault("remote-kv-wait-stuck", injected("load=lose:p=0.5"), name="injected-load-lose"),
    _fault("remote-kv-wait-stuck", injected("lookup=stall:p=0.3"), name="injected-lookup-stall"),
    _fault("connector-save-stuck", injected("save=stall:p=0.3"), name="injected-save-stall"),
    _fault("connector-ack-stuck", injected("ack=lose:p=0.4"), name="injected-ack-lose"),
    _fault("connector-ack-stuck", unacknowledged),
    _fault("kv-load-failure", injected("load=fail:p=0.6"), name="injected-load-fail"),
    _fault("kv-load-failure", injected("load=fail_half:p=0.6"), name="injected-load-fail-half"),
    _fault("kv-load-failure", injected("load=fail:p=0.6", policy="fail"), name="injected-fail-end"),
    _fault("kv-load-failure", failing("recompute"), name="loads-that-fail-and-are-computed"),
    _fault("kv-load-failure", failing("fail"), name="loads-that-fail-and-end-their-request"),
    _fault("kv-load-failure", loads_that_are_given_up),
    _fault("pd-producer-lease-expiry", leases_that_expire),
    _fault("offload-overhead", convoy),
    _fault("connector-parked-deadlock", loads_that_hold_each_other),
    _fault("deferred-slot-exhaustion", set_aside_in_the_slots),
    _healthy(loads_that_pay),
    _healthy(nothing_to_load),
    _healthy(late_but_there),
    _healthy(acknowledged_late),
)
