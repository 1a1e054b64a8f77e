"""A connector that answers as its script says, and reports loads and sendings when they are due."""

from __future__ import annotations

from collections import Counter

from engine.request import Request
from engine.scheduler import Scheduler, SchedulerOutput
from tests.engine.play.scenario import RequestPlan, Transfer


class ScriptedConnector:
    """The scheduler's side: what lies elsewhere."""

    def __init__(self, plans: dict[str, RequestPlan]) -> None:
        self._scripts = {name: plan.transfer for name, plan in plans.items()}
        self._num_unknown = Counter({name: s.num_unknown for name, s in self._scripts.items()})

    def num_external_tokens(self, request: Request, num_local_tokens: int) -> int | None:
        if self._num_unknown[request.request_id] > 0:
            self._num_unknown[request.request_id] -= 1
            return None
        script = self._scripts[request.request_id]
        # A step cannot do without a token of its own; a load beside the steps can bring all.
        most = request.num_tokens - (not script.is_async)
        return max(0, min(script.num_tokens, most) - num_local_tokens)

    def loads_async(self, request: Request) -> bool:
        return self._scripts[request.request_id].is_async

    def delays_free(self, request: Request) -> bool:
        return self._scripts[request.request_id].send_steps is not None


class Transfers:
    """The workers' side: what is on its way, and when it is done."""

    def __init__(self, scripts: dict[str, Transfer], block_size: int) -> None:
        self._scripts = scripts
        self._block_size = block_size
        self._loads: dict[str, int] = {}
        self._first_loaded: dict[str, int] = {}
        """Block of each load that is the first behind its local hit."""
        self._sends: dict[str, int] = {}
        self._has_failed: set[str] = set()
        self._invalid: dict[int, set[int]] = {}

    @property
    def under_way(self) -> bool:
        return bool(self._loads or self._sends)

    def scheduled(self, output: SchedulerOutput) -> None:
        """Notes the loads that a step starts, and the blocks that its own loads fail to fill."""
        for name, (_, local, _) in output.kv_loads_started.items():
            self._loads[name] = output.step + self._scripts[name].load_steps
            self._first_loaded[name] = local // self._block_size
        tables = {new.request_id: new.block_ids for new in output.scheduled_new_reqs}
        for cached in output.scheduled_cached_reqs:
            if cached.resumed and cached.new_block_ids is not None:
                tables[cached.request_id] = cached.new_block_ids
        for name, num_external in output.num_external_tokens.items():
            local = output.num_prefix_hit_tokens[name]
            fails_at = self._scripts[name].fails_at
            if local is None or fails_at is None or name in self._has_failed:
                continue
            first = local // self._block_size
            end = -(-(local + num_external) // self._block_size)
            if num_external and first <= fails_at < end and tables[name][0][fails_at]:
                self._has_failed.add(name)
                self._invalid.setdefault(output.step, set()).add(tables[name][0][fails_at])

    def due(self, step: int, scheduler: Scheduler) -> dict[str, frozenset]:
        """Returns what the runner reports with a step's update."""
        for name in scheduler.kept:
            if name not in self._loads and name not in self._sends:
                self._sends[name] = step + (self._scripts[name].send_steps or 0)
        received = {name for name, due in self._loads.items() if due <= step}
        sent = {name for name, due in self._sends.items() if due <= step}
        failed, invalid = set(), self._invalid.pop(step, set())
        for name in received:
            request, fails_at = scheduler.requests.get(name), self._scripts[name].fails_at
            if request is None or fails_at is None or name in self._has_failed:
                continue
            self._has_failed.add(name)
            blocks = scheduler.kv.block_ids(request)[0]
            if fails_at < 0:
                failed.add(name)
            elif self._first_loaded[name] <= fails_at < len(blocks) and blocks[fails_at]:
                invalid.add(blocks[fails_at])
        for name in received:
            del self._loads[name]
        for name in sent:
            del self._sends[name]
        return {
            "finished_recving": frozenset(received),
            "finished_sending": frozenset(sent),
            "failed_recving": frozenset(failed),
            "invalid_block_ids": frozenset(invalid),
        }
