"""KV that comes from elsewhere and goes there: a connector's answers, loads, failures, sends."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from telemetry.records import ConnectorEvent, StepRow
from telemetry.sources.vllm.blocks import Blocks
from telemetry.sources.vllm.lives import Life, Lives, LoadAnswer
from telemetry.sources.vllm.steps import Steps
from telemetry.vocabulary import EventKind


class Loads:
    """Takes down what vLLM's scheduler sees of a KV connector.

    Not to be seen from there: what the workers save, and how long a transfer itself took.
    """

    def __init__(
        self, scheduler: Any, steps: Steps, lives: Lives, blocks: Blocks, statuses: Any
    ) -> None:
        self._scheduler = scheduler
        self._steps = steps
        self._lives = lives
        self._blocks = blocks
        self._loading = statuses.WAITING_FOR_REMOTE_KVS
        self._since: dict[str, int] = {}
        """Loads in flight, in the order in which they began."""
        transfer = scheduler.vllm_config.kv_transfer_config
        self._name = None if transfer is None else transfer.kv_connector
        self._policy = int(not scheduler.recompute_kv_load_failures)

    # ------------------------------------------------------------------------- inside schedule()

    def looked_up(self, request: Any, num_local: int, answer: tuple[int | None, bool]) -> None:
        """The connector said what it has behind the local hit; told where that is new."""
        life = self._lives.of(request)
        if life is None:
            return
        num_external, is_async = answer[0], bool(answer[1])
        known = life.answer
        if (
            known is not None
            and known.is_async == is_async
            and known.foretells(num_local, num_external)
        ):
            return
        reach = num_external and num_local + num_external
        life.answer = LoadAnswer(reach, is_async)
        is_known = num_external is not None
        kind = EventKind.lookup_answered if is_known else EventKind.lookup_pending
        event = self._tell(kind, life, num_external)
        event.num_hit_tokens = num_local
        event.is_async = int(is_async) if is_known else None

    def started(self, request: Any, life: Life, num_local: int, num_external: int) -> None:
        """A load has begun, into blocks that the request holds now."""
        held = self._blocks.num_held(request.request_id)
        event = self._tell(EventKind.load_started, life, num_external, held)
        event.num_hit_tokens, event.is_async = num_local, 1
        life.loaded_from = num_local
        life.load_since = event.ts
        self._since[request.request_id] = event.ts

    def take_loaded(self, life: Life, start: int) -> tuple[int, int] | None:
        """Returns local hit and loaded tokens behind which a request starts to compute.

        None where nothing was loaded beside the steps.
        """
        num_local, life.loaded_from = life.loaded_from, None
        return None if num_local is None else (min(num_local, start), max(0, start - num_local))

    def count(self, row: StepRow) -> None:
        """Counts into a step's row the loads under way, and those whose request has to run yet."""
        scheduler = self._scheduler
        row.num_loads_in_flight = row.num_loaded_not_promoted = 0
        received = scheduler.finished_recving_kv_req_ids
        for request in scheduler.kv_holding_waiting:
            if request.request_id in received:
                row.num_loaded_not_promoted += 1
            elif request.status is self._loading:
                row.num_loads_in_flight += 1
        began = next(iter(self._since.values()), None)
        row.oldest_load_ns = None if began is None else row.ts - began

    # ------------------------------------------------------------------- in update_from_output()

    def transfers_finished(self, output: Any) -> None:
        """Workers have received KV, or sent it; vLLM has not acted on it yet."""
        for request_id in sorted(output.finished_recving or ()):
            life = self._lives.by_id.get(request_id)
            if life is None:
                self._kept_no_more(request_id, EventKind.load_finished)
            elif life.request.is_finished():  # in this very update
                held = self._blocks.num_held(request_id)
                self._tell(EventKind.load_finished, life, num_blocks=held)
            elif life.request.status is self._loading:
                event = self._tell(EventKind.load_finished, life)
                self.stopped_loading(life, event.ts)
        for request_id in sorted(output.finished_sending or ()):
            self._kept_no_more(request_id, EventKind.ack_received)

    def failed(self, request_id: str, invalid_blocks: Collection[int] | None) -> None:
        """A load has failed and the request has been cut back.

        Args:
            invalid_blocks: ids of the blocks that failed; None: all of the load.
        """
        life = self._lives.by_id.get(request_id)
        if life is None:
            return
        request = life.request
        event = self._tell(EventKind.load_failed, life, request.num_computed_tokens)
        event.policy = self._policy
        life.has_lost_load = True
        if invalid_blocks is not None:
            (table,) = self._scheduler.kv_cache_manager.get_block_ids(request_id)
            event.invalid_blocks = [i for i, block in enumerate(table) if block in invalid_blocks]
            event.num_invalid_blocks = len(event.invalid_blocks)
        if request.status is not self._loading:
            self._lives.computing[request_id] = life

    def stopped_loading(self, life: Life, now: int) -> None:
        """A request waits for its load no more."""
        self._since.pop(life.request.request_id, None)
        if life.load_since is not None:
            life.load_ns = (life.load_ns or 0) + now - life.load_since
            life.load_since = None

    def kept(self, life: Life) -> None:
        """A request has ended, and its blocks stay until they have been sent."""
        held = self._blocks.num_held(life.request.request_id)
        self._tell(EventKind.ack_wait_started, life, num_blocks=held)

    def _kept_no_more(self, request_id: str, why: EventKind) -> None:
        life = self._lives.kept.pop(request_id, None)
        if life is not None:
            self._tell(why, life, num_blocks=self._blocks.num_held(request_id))

    def _tell(
        self,
        kind: EventKind,
        life: Life,
        num_tokens: int | None = None,
        num_blocks: int | None = None,
    ) -> ConnectorEvent:
        steps = self._steps
        event = ConnectorEvent(kind=kind, step=steps.step, ts=steps.clock(), request=life.number)
        event.connector = self._name
        event.num_tokens, event.num_blocks = num_tokens, num_blocks
        event.num_steps_in_flight = steps.num_in_flight
        steps.tell(event)
        return event
