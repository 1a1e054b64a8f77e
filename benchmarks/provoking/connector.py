"""A KV connector on the simulated clock: what it has, how long it takes, what it never does.

The scheduler asks it as any other; only the transfers are times instead of copies. Real threads
and a real store are what `engine.connectors.building` makes (`Recording` takes those, too).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.request import Request
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

Seconds = Callable[[Request], float | None]
"""How long a transfer of a request takes; None: for ever."""


def nothing(request: Request) -> int:
    """The KV that a connector without any has."""
    return 0


def at_once(request: Request) -> float | None:
    """A transfer that takes no time."""
    return 0.0


@dataclass(slots=True, kw_only=True)
class SimulatedConnector:
    """Brings and takes KV in given times.

    Args:
        num_tokens: tokens of a prompt that it has elsewhere, from the first on.
        load_seconds: how long a load takes.
        fails: whether a load that has ended turns out to have failed.
        saves: whether the blocks of a request that ends are kept until they are acknowledged.
        ack_seconds: how long that takes after its end.
    """

    num_tokens: Callable[[Request], int] = nothing
    load_seconds: Seconds = at_once
    fails: Callable[[Request], bool] = lambda request: False
    saves: Callable[[Request], bool] = lambda request: False
    ack_seconds: Seconds = at_once
    _requests: dict[str, Request] = field(default_factory=dict)
    _loads: dict[str, int | None] = field(default_factory=dict)
    _acks: dict[str, int | None] = field(default_factory=dict)

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        self._requests[request.request_id] = request
        most = min(self.num_tokens(request), request.num_prompt_tokens - 1)
        return max(0, most - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        return True

    def delays_free(self, request: Request) -> bool:
        self._requests[request.request_id] = request
        return self.saves(request)

    def report(
        self, output: SchedulerOutput, result: ModelRunnerOutput, now: int
    ) -> ModelRunnerOutput:
        """Returns a step's result with the transfers in it that have ended by `now` (ns)."""
        for name in output.kv_loads_started:
            self._loads[name] = _due(self.load_seconds(self._requests[name]), now)
        for name in output.finished_req_ids:
            request = self._requests.get(name)
            if request is not None and self.saves(request):
                self._acks[name] = _due(self.ack_seconds(request), now)
        loaded = _ended(self._loads, now)
        failed = frozenset(name for name in loaded if self.fails(self._requests[name]))
        return replace(
            result,
            finished_recving=loaded,
            failed_recving=failed,
            finished_sending=_ended(self._acks, now),
        )


def _due(seconds: float | None, now: int) -> int | None:
    return None if seconds is None else now + int(seconds * 1e9)


def _ended(transfers: dict[str, int | None], now: int) -> frozenset[str]:
    """Takes those transfers out that have ended by now."""
    ended = frozenset(n for n, due in transfers.items() if due is not None and due <= now)
    for name in ended:
        del transfers[name]
    return ended
