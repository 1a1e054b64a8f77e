"""Plays a run of our scheduler with a scripted model on a simulated clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.provoking.pace import Pace
from benchmarks.provoking.recording import STUCK_SECONDS, Recording, log_of
from benchmarks.provoking.traffic import Call
from benchmarks.whatif.runs import BROUGHT_RATIO, Run
from benchmarks.whatif.simulated_store import BringingConnector, SimulatedStore
from diagnose.reading import NS, QueryLog
from diagnose.replay.edits import changed_config
from engine.config import EngineConfig, KVConnectorConfig
from engine.workload.plan import PlannedRequest

DRAFT_IS_RIGHT = 0.6
SAVE_SECONDS = 0.02
"""How long it takes until a store has what it is given."""

Settings = Mapping[str, Any]


def simulated(run: Run, settings: Settings) -> QueryLog:
    """Returns the log of a run of our scheduler with a scripted model."""
    known = dict(settings)
    max_model_len = known.pop("max_model_len")
    config = changed_config(EngineConfig(), known)
    config = replace(
        config,
        scheduler=replace(config.scheduler, max_model_len=max_model_len),
        kv_connector=_connector_config(run),
    )
    calls = [_call(run, index, each) for index, each in enumerate(run.load.plan(run.seed))]
    left = iter(calls[run.clients :]) if run.clients else iter(())
    random = Random(run.seed)
    engine = Woken(
        config,
        Random(run.seed),
        pace=Pace(step_ms=run.step_ms),
        connector=_connector(run, config),
        num_accepted=(lambda name, n: _num_right(random, n)) if run.num_drafts else None,
        on_end=lambda engine, number: next(left, None),
    )
    engine.send(calls[: run.clients] if run.clients else calls)
    engine.run()
    return log_of(engine)


def _connector_config(run: Run) -> KVConnectorConfig | None:
    match run.connector:
        case None:
            return None
        case "brings":
            return KVConnectorConfig(role="kv_consumer")
        case "keeps":
            return KVConnectorConfig(connector="HostMemoryConnector")


def _connector(run: Run, config: EngineConfig) -> BringingConnector | None:
    seconds, kv = run.load_seconds, config.kv_connector
    match run.connector:
        case "keeps" if kv is not None:
            return SimulatedStore(
                config=kv,
                block_size=config.cache.block_size,
                save_seconds=SAVE_SECONDS,
                load_seconds=lambda request: seconds,
            )
        case "brings":
            return BringingConnector(
                num_tokens=lambda request: int(request.num_prompt_tokens * BROUGHT_RATIO),
                load_seconds=lambda request: seconds,
            )
        case _:
            return None


class Woken(Recording):
    """An engine that is woken by the end of a transfer, as one that is served is."""

    def step(self) -> None:
        """Decides a step, and tells the store when."""
        if isinstance(self._connector, SimulatedStore):
            self._connector.step_began = self.clock.now
        super().step()

    def _wait_stuck(self) -> None:
        if self.scheduler.has_received_kv:
            return
        now, connector = self.clock.now, self._connector
        coming = [now + int(STUCK_SECONDS * NS)]
        if self._due:
            coming.append(self._due[0][0])
        if isinstance(connector, BringingConnector):
            coming += connector.under_way()
        self.pass_ns(max(NS // 1000, min(coming) - now))


def _num_right(random: Random, num_drafts: int) -> int:
    """Returns how many drafts are right: as often one as the next, up to the first wrong one."""
    right = 0
    while right < num_drafts and random.random() < DRAFT_IS_RIGHT:
        right += 1
    return right


def _call(run: Run, index: int, planned: PlannedRequest) -> Call:
    return Call(
        at=0.5 + planned.offset_seconds if run.clients is None else 0.005,
        num_prompt_tokens=planned.num_prompt_tokens,
        max_tokens=planned.max_tokens,
        priority=planned.priority or 0,
        shared="shared" if run.load.shared_prefix else None,
        num_shared_tokens=run.load.shared_prefix,
        adapter=f"adapter-{index % run.num_adapters}" if run.num_adapters else None,
    )
