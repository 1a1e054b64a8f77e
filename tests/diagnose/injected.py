"""Runs of the real scheduler with a KV connector whose loads go wrong on demand, recorded.

Everything but the model and the clock is real: the store, the threads, the faults of `--inject`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from diagnose.diagnosis import read_context
from diagnose.finding import Finding, RuleVerdict
from diagnose.rules import find_rule
from diagnose.window import choose_window, engines_in
from engine.connectors.building import build_connector
from engine.connectors.faults import Fault
from engine.connectors.no_blocks import NoBlocks
from engine.connectors.settings import KVTransferConfig
from engine.runner.scripted import ScriptedRunner
from engine.scheduler import Scheduler
from tests.diagnose.logs import Arrival, Clock, MemoryLog, Run, _request, config, log_of

SECOND = 1_000_000_000
NUM_REQUESTS = 6
PROMPT_TOKENS = 64
"""Two blocks of 32, which a load brings whole."""


@dataclass
class InjectedRun:
    """An engine whose requests come twice: first they are stored, then they are to be loaded."""

    faults: tuple[str, ...] = ()
    policy: str = "recompute"
    load_timeout_seconds: float | None = None
    run: Run = field(init=False)
    clock: Clock = field(default_factory=Clock)
    _num_requests: int = 0

    def __post_init__(self) -> None:
        transfer = KVTransferConfig(
            kv_connector="HostMemoryConnector",
            kv_role="kv_both",
            kv_load_failure_policy=self.policy,  # type: ignore[arg-type]
            kv_connector_extra_config={"load_timeout_seconds": self.load_timeout_seconds},
        )
        self.run = Run(replace(config(num_gpu_blocks=256), kv_connector=transfer.config()))
        self.runner = ScriptedRunner(lambda request_id, n: 7)
        faults = [Fault.parse(text) for text in self.faults]
        self.worker = self.runner.transfers = build_connector(
            transfer, faults, self.run.config, NoBlocks(), dict
        )
        self.scheduler = Scheduler(
            self.run.config,
            recorder=self.run.recorder,
            clock=self.clock,
            connector=self.worker.connector,
        )

    def arrive(self) -> None:
        """The requests come, with the prompts that they always have."""
        for number in range(NUM_REQUESTS):
            request = _request(number, Arrival(0, PROMPT_TOKENS, max_tokens=4))
            request.number = self._num_requests
            request.request_id = f"{request.request_id}-{self._num_requests}"
            self._num_requests += 1
            self.scheduler.add_request(request)

    def step(self, seconds: float) -> None:
        """Runs a step, lets transfers end, and moves the clock on."""
        output = self.scheduler.schedule()
        self.clock.now += 1_000_000
        self.scheduler.update_from_output(output, self.runner.execute(output))
        self.clock.now += int(seconds * SECOND)
        self.worker.settle(60.0)

    def store(self) -> None:
        """Runs the requests until their blocks are stored, and empties the local cache."""
        self.arrive()
        for _ in range(300):
            if not self.scheduler.has_requests():
                break
            self.step(0.01)
        assert not self.scheduler.requests
        self.scheduler.reset_prefix_cache()

    def log(self) -> MemoryLog:
        """Ends the engine; returns its log."""
        self.scheduler.journal.flush()
        self.worker.close()
        builder = self.run.builder()
        builder.rows["engines"][-1]["kv_connector"] = "HostMemoryConnector"
        builder.now, builder.current_step = self.clock.now, self.run.recorder.steps[-1].step
        return log_of(builder.heartbeat())


def injected(
    *faults: str,
    seconds: float = 400.0,
    step_seconds: float = 5.0,
    stores: bool = True,
    **settings: object,
) -> MemoryLog:
    """Returns the log of a run whose second round of requests meets the faults.

    Without `stores` there is no first.
    """
    run = InjectedRun(faults, **settings)  # type: ignore[arg-type]
    if stores:
        run.store()
    run.arrive()
    for _ in range(int(seconds / step_seconds)):
        run.step(step_seconds)
    return run.log()


def judged(log: MemoryLog, rule_id: str) -> RuleVerdict:
    """Returns what one rule says of a log by itself."""
    window = choose_window(log)
    verdict = find_rule(rule_id).judge(read_context(log, window, engines_in(log, window)[0]), {})
    assert verdict is not None
    return verdict


def found(log: MemoryLog, rule_id: str) -> Finding:
    """The finding of one rule; fails where it says something else."""
    verdict = judged(log, rule_id)
    assert isinstance(verdict, Finding), verdict
    return verdict
