"""Builders for tests of the scheduler: settings, requests, and a run driven by scripted tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from engine.connectors import KVConnector
from engine.request import Request
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from engine.scheduler import RequestOutput, Scheduler, SchedulerOutput
from telemetry.recorder import ListRecorder
from telemetry.records import Event, StepRow


def config(
    *, num_usable_blocks: int = 100, block_size: int = 4, **scheduler: object
) -> EngineConfig:
    """Returns settings with a small pool; scheduler settings by name."""
    cache = {name: scheduler.pop(name) for name in ("enable_prefix_caching",) if name in scheduler}
    return EngineConfig(
        scheduler=SchedulerConfig(**scheduler),  # type: ignore[arg-type]
        cache=CacheConfig(
            num_gpu_blocks=num_usable_blocks + 1,
            block_size=block_size,
            **cache,  # type: ignore[arg-type]
        ),
    )


@dataclass(slots=True)
class Run:
    """A scheduler, a recorder and a runner whose every token is 7."""

    config: EngineConfig
    recorder: ListRecorder = field(default_factory=ListRecorder)
    results: list[RequestOutput] = field(default_factory=list)
    num_requests: int = 0
    connector: KVConnector | None = None
    array_path: bool = True
    scheduler: Scheduler = field(init=False)
    runner: ScriptedRunner = field(init=False)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            self.config,
            recorder=self.recorder,
            connector=self.connector,
            array_path=self.array_path,
        )
        self.runner = ScriptedRunner(lambda request_id, n: 7)

    def add(
        self,
        request_id: str,
        *,
        prompt: int | Iterable[int] = 4,
        max_tokens: int = 4,
        **fields: object,
    ) -> Request:
        """Adds a request; a prompt given as a number has tokens of its own."""
        if isinstance(prompt, int):
            first = 1000 * (self.num_requests + 1)
            prompt = range(first, first + prompt)
        request = Request(
            request_id,
            number=self.num_requests,
            prompt_token_ids=list(prompt),
            sampling=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            **{"arrival_time": float(self.num_requests), **fields},  # type: ignore[arg-type]
        )
        self.num_requests += 1
        self.scheduler.add_request(request)
        return request

    def step(self) -> SchedulerOutput:
        """Runs one whole step and checks the scheduler's integrity."""
        output = self.scheduler.schedule()
        self.results += self.scheduler.update_from_output(output, self.runner.execute(output))
        self.scheduler.check_integrity()
        return output

    def steps(self, count: int) -> SchedulerOutput:
        """Runs several steps and returns the last output."""
        for _ in range(count - 1):
            self.step()
        return self.step()

    def to_the_end(self, limit: int = 10_000) -> None:
        """Runs until nothing is left to do."""
        for _ in range(limit):
            if not self.scheduler.has_requests():
                return
            self.step()
        raise AssertionError(f"not finished after {limit} steps")

    @property
    def last_step(self) -> StepRow:
        """The newest recorded row."""
        return self.recorder.steps[-1]

    def events(self, kind: type[Event]) -> list[Event]:
        """Returns the recorded events of a class."""
        return [event for event in self.recorder.events if type(event) is kind]
