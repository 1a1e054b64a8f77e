"""What the journal hears inside `schedule()`: who is looked at, who gets blocks, who is evicted."""

from __future__ import annotations

from typing import Any

from telemetry.records import RequestAdmitted
from telemetry.sources.vllm.block_needs import Wish
from telemetry.sources.vllm.lives import Life
from telemetry.sources.vllm.parts import Parts
from telemetry.sources.vllm.preemptions import admitted_again
from telemetry.vocabulary import EventKind, SkipReason


class ScanHooks(Parts):
    """Follows vLLM's two scans by the calls that it makes in them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.admitted: dict[str, Life] = {}
        """Requests that joined the running ones in this step."""
        self.num_hit_tokens = 0
        self.num_external_tokens = 0
        self.has_scanned = False
        """Whether anything was heard of the scans of this step that the next one must forget."""

    def forget_scan(self) -> None:
        """A step begins behind one in which something was heard."""
        self.has_scanned = False
        self.running.forget()
        self.waiting.begin()
        self.preemptions.begin_step()
        self.encoder.begin()
        self.admitted.clear()
        self.num_hit_tokens = self.num_external_tokens = 0

    # ------------------------------------------------------------------------------ blocks

    def after_allocate_slots(
        self, blocks: Any, request: Any, num_new_tokens: int, **asked: Any
    ) -> None:
        """A request asked for blocks, and got them, or None."""
        self.has_scanned = True
        if request.status is not self.statuses.RUNNING:
            self._after_admission(blocks, request, num_new_tokens, asked)
            return
        if blocks is None:
            wish = _wish(num_new_tokens, asked)
            self.running.refused(request, wish)
            return
        if self.running.tracks_grants:
            self.running.granted[request.request_id] = num_new_tokens
        wanting = self.running.wanting
        if wanting is not None and wanting.request is request:
            self.running.wanting = None
            self.preemptions.beneficiary_allocated(request)

    def _after_admission(
        self, blocks: Any, request: Any, num_new_tokens: int, asked: dict[str, Any]
    ) -> None:
        wish = _wish(num_new_tokens, asked)
        if blocks is None:
            self.waiting.got_no_blocks(request, self.needs.shortage(request, wish))
            return
        life = self.lives.of(request)
        if life is None:
            self.waiting.admitted(request)
        elif wish.delay_cache_blocks:
            local, external = wish.num_new_computed_tokens, wish.num_external_computed_tokens
            self.loads.started(request, life, local, external)
            self.waiting.set_aside(SkipReason.load_started)
        else:
            self.waiting.admitted(request)
            self._admitted(request, life, wish)

    def _admitted(self, request: Any, life: Life, wish: Wish) -> None:
        """A request has joined the running ones."""
        now, name = self.clock(), request.request_id
        num_hit, num_external, is_async = self._brought(request, life, wish)
        life.is_catching_up = request.status is self.statuses.PREEMPTED
        if life.admitted_ts is None:
            life.admitted_ts = now
        admitted_again(life, now)
        self.times.leave(name)
        self.lives.runs(name, life)
        self.admitted[name] = life
        self.tell(
            RequestAdmitted(
                kind=EventKind.resumed if life.is_catching_up else EventKind.admitted,
                step=self.steps.step,
                ts=now,
                request=life.number,
                num_hit_tokens=num_hit,
                num_external_tokens=num_external,
                is_async=int(is_async),
                num_scheduled_tokens=wish.num_new_tokens,
            )
        )

    def _brought(self, request: Any, life: Life, wish: Wish) -> tuple[int | None, int, bool]:
        """Returns the local hit and external tokens behind which a request starts to compute.

        And whether these were loaded beside the steps. The hit is None without a look-up.
        """
        if request.num_computed_tokens == 0:
            life.loaded_from = None
            num_hit, num_external = wish.num_new_computed_tokens, wish.num_external_computed_tokens
            self.num_hit_tokens += num_hit
            self.num_external_tokens += num_external
            return num_hit, num_external, False
        loaded = self.loads.take_loaded(life, request.num_computed_tokens)
        return (None, 0, False) if loaded is None else (*loaded, True)

    # ------------------------------------------------------------------------------ waiting

    def after_handle_blocked_waiting_request(self, is_ready: bool, request: Any) -> None:
        """The scan of the waiting requests has come to the next one."""
        self.has_scanned = True
        if not is_ready:
            self.waiting.blocked(request)
            return
        if self.allocations is not None:
            self.allocations.turn_on()
        life = self.lives.of(request)
        if life is not None and life.awaits_grammar:
            life.awaits_grammar = False
            if self.features.grammar:
                self.tell(self.note(EventKind.grammar_ready, life))
        self.waiting.ready(request, self._adapters_served)

    def after_get_num_new_matched_tokens(
        self, answer: Any, request: Any, num_computed_tokens: int
    ) -> None:
        """The KV connector said what it has; where it cannot tell yet, the request is set aside."""
        if request.skip_reading_prefix_cache:
            return
        self.loads.looked_up(request, num_computed_tokens, answer)
        if answer[0] is None and self.waiting.pending is request:
            self.waiting.set_aside(SkipReason.remote_kv_lookup_pending)

    def after_ec_transfer_pending(
        self, is_pending: bool, request: Any, num_computed_tokens: int
    ) -> None:
        """It is known where the request would start, and whether encoder output is missing."""
        if self.waiting.pending is request:
            self.waiting.num_computed_tokens = num_computed_tokens
            if is_pending:
                self.waiting.set_aside(SkipReason.encoder_transfer)

    def _adapters_served(self) -> set[int]:
        """Returns the adapters of the running requests that were given tokens in this step."""
        granted, adapters = self.running.granted, self.lives.with_adapter.items()
        return {life.adapter for name, life in adapters if name in granted and life.adapter}

    # ------------------------------------------------------------------------------ encoder

    def after_can_allocate(
        self,
        has_room: bool,
        request: Any,
        input_id: int,
        encoder_compute_budget: int,
        num_embeds_to_schedule: int,
    ) -> None:
        """The encoder cache has room for an item, or not."""
        if not has_room:
            self.has_scanned = True
            self.encoder.refused(request, input_id, encoder_compute_budget)

    def after_ensure_cache_available(self, is_there: bool, request: Any, *_: Any) -> None:
        """The output of an item can be had, or is on its way."""
        if not is_there:
            self.has_scanned = True
            self.encoder.on_its_way(request)

    def after_allocate_encoder_inputs(
        self, _: None, request: Any, input_ids: list[int], *__: Any
    ) -> None:
        """Encoder items are computed in this step."""
        if self.running.tracks_grants:
            self.running.embeds_granted[request.request_id] = sum(
                map(request.get_num_encoder_embeds, input_ids)
            )

    # ------------------------------------------------------------------------------ eviction

    def before_preempt_request(self, request: Any, *_: Any, **__: Any) -> None:
        """A request is about to be evicted; nothing of it has been zeroed yet."""
        self.has_scanned = True
        self.preemptions.about_to_preempt(request)
        self.times.leave(request.request_id)

    def after_preempt_request(self, _: None, request: Any, *__: Any, **___: Any) -> None:
        """The request has lost its blocks."""
        self.preemptions.has_preempted()


_WISHES = frozenset(Wish.__dataclass_fields__)


def _wish(num_new_tokens: int, asked: dict[str, Any]) -> Wish:
    known = {name: value for name, value in asked.items() if name in _WISHES}
    return Wish(num_new_tokens=num_new_tokens, **known)
