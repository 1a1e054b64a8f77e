"""An engine with a model and a KV connector, driven step by step, its books checked at each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.connectors.building import build_connector
from engine.connectors.faults import Fault
from engine.connectors.settings import KVTransferConfig
from engine.request import Request
from engine.runner.kv_manifest import kv_manifest
from engine.runner.model import LoadedModel
from engine.runner.model_runner import ModelRunner
from engine.runner.paged_blocks import PagedBlocks
from engine.sampling import SamplingParams
from engine.scheduler import Scheduler, SchedulerOutput
from engine.scheduler.output import RequestOutput
from telemetry.recorder import ListRecorder
from telemetry.records import ConnectorEvent, RequestAdmitted
from telemetry.vocabulary import EventKind
from tests.engine.runner.builders import engine_config, request


def transfer(
    directory: Path | None = None,
    *,
    policy: str = "recompute",
    role: str = "kv_both",
    **extra: Any,
) -> KVTransferConfig:
    """Returns a connector's settings: to the directory, or without one to host memory."""
    name = "HostMemoryConnector" if directory is None else "SharedDirectoryConnector"
    if directory is not None:
        extra["shared_storage_path"] = str(directory)
    return KVTransferConfig(
        kv_connector=name,  # type: ignore[arg-type]
        kv_role=role,  # type: ignore[arg-type]
        kv_load_failure_policy=policy,  # type: ignore[arg-type]
        kv_connector_extra_config=extra,
    )


class RealEngine:
    """A scheduler, a runner with a model, and a connector.

    Args:
        step_seconds: what a step takes on the scheduler's clock, whatever it took; transfers that
            are due end meanwhile, so that time-outs mean the same on any machine. None: its clock
            is real, and transfers end when they do.

    Attributes:
        results: what came of each request, in order.
    """

    def __init__(
        self,
        model: LoadedModel,
        settings: KVTransferConfig | None,
        *faults: str,
        num_blocks: int = 256,
        budget: int = 64,
        step_seconds: float | None = None,
    ) -> None:
        connector = None if settings is None else settings.config()
        self.config = replace(
            engine_config(num_blocks=num_blocks, budget=budget), kv_connector=connector
        )
        self.recorder = ListRecorder()
        self.runner = ModelRunner(model, self.config)
        if settings is not None:
            self.runner.transfers = build_connector(
                settings,
                [Fault.parse(text) for text in faults],
                self.config,
                PagedBlocks(self.runner.kv_cache),
                lambda: kv_manifest(model, self.config.cache.block_size),
            )
        self._step_seconds, self._now = step_seconds, 1_000_000_000_000_000_000
        self.scheduler = Scheduler(
            self.config,
            recorder=self.recorder,
            clock=None if step_seconds is None else lambda: self._now,
            connector=None if self.worker is None else self.worker.connector,
        )
        self.results: dict[str, list[RequestOutput]] = {}

    @property
    def worker(self) -> Any:
        return self.runner.transfers

    def step(self) -> SchedulerOutput:
        """Runs a step; where it scheduled nothing, a transfer has a moment to end."""
        output = self.scheduler.schedule()
        results = self.scheduler.update_from_output(output, self.runner.execute(output))
        self.scheduler.check_integrity()
        for result in results:
            self.results.setdefault(result.request_id, []).append(result)
        if self._step_seconds is not None:
            self._now += int(self._step_seconds * 1e9)
            self.worker.settle(60.0)
        elif not output.total_num_scheduled_tokens and self.worker is not None:
            self.worker.wait(0.005)
        return output

    def run(
        self,
        requests: Sequence[Request],
        *,
        arrivals_per_step: int = 4,
        before_step: Callable[[int], None] = lambda step: None,
    ) -> dict[str, list[int]]:
        """Returns the outputs of all requests; also waits until no block is kept."""
        pending = list(requests)
        for step in range(3000):
            for arrival in pending[:arrivals_per_step]:
                self.scheduler.add_request(arrival)
            del pending[:arrivals_per_step]
            before_step(step)
            self.step()
            if not pending and not self.scheduler.has_requests():
                self.scheduler.examine(deep=True).raise_if_broken()
                return {r.request_id: self.tokens(r.request_id) for r in requests}
        raise AssertionError(f"{len(self.scheduler.requests)} requests are unfinished")

    def tokens(self, name: str) -> list[int]:
        """Returns the tokens of a request so far."""
        return [token for each in self.results.get(name, ()) for token in each.new_token_ids]

    def close(self) -> None:
        """Ends its threads, and checks that nothing is held."""
        if self.worker is not None:
            self.worker.close()
        pool = self.scheduler.kv.pool
        assert pool.num_free == pool.num_usable

    def count(self, kind: EventKind) -> int:
        """Returns how many such events of transfers there were."""
        events = [e for e in self.recorder.events if isinstance(e, ConnectorEvent)]
        return sum(event.kind == kind for event in events)

    @property
    def num_loaded(self) -> int:
        """Tokens whose KV came from the connector, over all admissions."""
        events = [e for e in self.recorder.events if isinstance(e, RequestAdmitted)]
        return sum(event.num_external_tokens or 0 for event in events)


def prompts(count: int, *, seed: int = 1) -> list[list[int]]:
    """Returns prompts of which many share their beginnings."""
    rng = random.Random(seed)
    beginnings = [[rng.randrange(2, 128) for _ in range(48)] for _ in range(3)]
    return [
        rng.choice(beginnings) + [rng.randrange(2, 128) for _ in range(rng.randrange(1, 30))]
        for _ in range(count)
    ]


def requests(prompts: Sequence[Sequence[int]], *, num_outputs: int = 12) -> list[Request]:
    sampling = SamplingParams(max_tokens=num_outputs, ignore_eos=True)
    return [request(number, prompt, sampling) for number, prompt in enumerate(prompts)]
