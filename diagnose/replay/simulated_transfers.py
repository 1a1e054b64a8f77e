"""KV that comes from elsewhere and goes there in a replay: begun by a step, ended by time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from diagnose.replay.simulated_connector import SimulatedConnector
from diagnose.replay.simulated_store import SimulatedStore, keeps
from diagnose.replay.timeline import Timeline
from diagnose.replay.workload import Workload
from engine.config import EngineConfig
from engine.request import Request
from engine.scheduler import ModelRunnerOutput, SchedulerOutput

_End = Literal["loaded", "failed", "sent", "answered"]


class SimulatedTransfers:
    """The transfers under way; `connector` is None where the engine has none.

    Args:
        requests: those under way, by their numbers in the replay, which are their names.
        clock: of the replay, ns.
    """

    def __init__(
        self,
        workload: Workload,
        config: EngineConfig,
        requests: Mapping[int, Request],
        clock: Callable[[], int],
    ) -> None:
        self.connector: SimulatedConnector | None = None
        if (own := config.kv_connector) is not None:
            self.connector = (
                SimulatedStore(workload, own, clock)
                if keeps(own)
                else SimulatedConnector(workload.requests, clock, workload.latency_factor)
            )
        self._requests = requests
        self._clock = clock
        self._ends: Timeline[tuple[_End, str]] = Timeline()

    @property
    def next_ns(self) -> int | None:
        """When the next transfer ends; None where none is under way."""
        return self._ends.next_ns

    def begin(self, output: SchedulerOutput) -> None:
        """Begins what a step asks for: loads, look-ups, saves of what it evicted."""
        connector = self.connector
        if connector is None:
            return
        now = self._clock()
        for name in output.kv_loads_started:
            taken, fails = connector.next_load(int(name))
            self._ends.at(now + taken, ("failed" if fails else "loaded", name))
        for end in connector.take_begun_lookups():
            self._ends.at(end, ("answered", ""))
        if isinstance(connector, SimulatedStore):
            for name in output.preempted_req_ids:
                if (request := self._requests.get(int(name))) is not None:
                    connector.preempted(request)

    def ended(self, request: Request) -> None:
        """A request has ended: what it leaves is being sent."""
        ack_ns = None if self.connector is None else self.connector.ack_ns(request)
        if ack_ns is not None:
            self._ends.at(self._clock() + ack_ns, ("sent", request.request_id))

    def report(self, result: ModelRunnerOutput) -> ModelRunnerOutput:
        """Returns a step's result with the transfers in it that have ended by now."""
        ended = list(self._ends.take(self._clock()))
        if not ended:
            return result
        failed = frozenset(name for end, name in ended if end == "failed")
        return replace(
            result,
            finished_recving=failed | {name for end, name in ended if end == "loaded"},
            failed_recving=failed,
            finished_sending=frozenset(name for end, name in ended if end == "sent"),
        )
