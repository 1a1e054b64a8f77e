"""The scan of the waiting requests: who was set aside and why, and what ended it.

vLLM looks at waiting requests one after the other. Each of them ends up admitted, set aside for a
reason of its own, or as the one that ends the scan for all behind it: the head. What happens to it
can be told from what vLLM calls on the way:

    _handle_blocked_waiting_request   the next request is looked at; False: it is set aside
    get_num_new_matched_tokens        None: the connector cannot tell yet, it is set aside
    _ec_transfer_pending              True: its encoder output is on its way, it is set aside
    allocate_slots                    None: it is the head; else it is admitted, or begins to load
    (none of these)                   it is the head for another reason (`stop_reasons`)

Requests behind the head are not looked at by vLLM, nor here: their number costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telemetry.sources.vllm.block_needs import Shortage
from telemetry.sources.vllm.lives import Life, Lives
from telemetry.vocabulary import SkipReason

MAX_LOOKED_AT = 32
"""Blocked requests whose reason is looked at in one step; others keep theirs until their turn."""


class WaitingScan:
    """Follows the scan of one step over the waiting requests.

    Invariants:
        `pending` is the request that vLLM looks at now, until it is known what became of it.

    Args:
        on_skip: told of a request, and of why it is set aside, where that is new.
    """

    def __init__(
        self,
        scheduler: Any,
        lives: Lives,
        statuses: Any,
        on_skip: Callable[[Life, SkipReason], None],
    ) -> None:
        self.pending: Any = None
        self.num_computed_tokens: int | None = None
        """Tokens that the pending request would start behind; None until vLLM has looked."""
        self.refused: tuple[Any, Shortage] | None = None
        """The head and what it lacked, if it was blocks."""
        self.adapters: set[int] | None = None
        """Adapters of the step so far; None until somebody asks."""
        self.aside: list[Any] = []
        """Requests set aside in this step."""
        self._scheduler = scheduler
        self._lives = lives.by_id
        self._on_skip = on_skip
        self._loading = statuses.WAITING_FOR_REMOTE_KVS
        self._compiling = statuses.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        self._listening = statuses.WAITING_FOR_STREAMING_REQ
        lora = scheduler.lora_config
        self._max_adapters = None if lora is None else lora.max_loras
        self._num_blocked = 0
        self._first = 0
        self._end = MAX_LOOKED_AT

    def begin(self) -> None:
        """A step begins; of many blocked requests it is the turn of the next ones."""
        num, self._num_blocked = self._num_blocked, 0
        self._first = self._end if self._end < num else 0
        self._end = self._first + MAX_LOOKED_AT
        self.pending = self.num_computed_tokens = self.refused = self.adapters = None
        self.aside.clear()

    def blocked(self, request: Any) -> None:
        """The scan has come to a request that waits for something outside: it is set aside."""
        self.aside.append(request)
        self.pending = None
        place = self._num_blocked
        self._num_blocked = place + 1
        if self._first <= place < self._end:
            self._note(request, self.reason_of_blocked(request))

    def ready(self, request: Any, adapters: Callable[[], set[int]]) -> None:
        """The scan has come to a request that may run, unless it is set aside all the same.

        Args:
            adapters: returns those of the running requests that were given tokens.
        """
        self.pending, self.num_computed_tokens = request, None
        if request.num_stale_output_tokens and not request.drop_stale_output:
            self.set_aside(SkipReason.stale_output)
        elif self._max_adapters is not None and request.lora_request:
            if self.adapters is None:
                self.adapters = adapters()
            is_full = len(self.adapters) >= self._max_adapters
            if is_full and request.lora_request.lora_int_id not in self.adapters:
                self.set_aside(SkipReason.lora_slots)

    def set_aside(self, reason: SkipReason) -> None:
        """The pending request is set aside, and the scan goes on."""
        request, self.pending = self.pending, None
        if request is not None:
            self.aside.append(request)
            self._note(request, reason)

    def admitted(self, request: Any) -> None:
        """The pending request joins the running ones."""
        self.pending = None
        if self.adapters is not None and request.lora_request:
            self.adapters.add(request.lora_request.lora_int_id)

    def got_no_blocks(self, request: Any, shortage: Shortage) -> None:
        """The pending request is the head: it lacks blocks."""
        self.pending = None
        self.refused = request, shortage

    def reason_of_blocked(self, request: Any) -> SkipReason | None:
        """Returns what a request waits for outside; None where its status says nothing of it."""
        status = request.status
        if status is self._compiling:
            structured = request.structured_output_request
            is_wrong = structured is not None and isinstance(structured.grammar, Exception)
            return SkipReason.grammar_failed if is_wrong else SkipReason.grammar_compiling
        if status is self._loading:
            return SkipReason.remote_kv_loading
        return SkipReason.streaming_input if status is self._listening else None

    def head(self, num_waiting: int, num_holding: int) -> Any:
        """Returns the first request that the scan did not come to; None if there is none.

        Args:
            num_waiting: requests that wait, `num_holding` of them with blocks.
        """
        scheduler, aside = self._scheduler, self.aside
        num_aside = sum(map(self.holds_blocks, aside)) if num_holding else 0
        if num_holding > num_aside:
            return _first_left(scheduler.kv_holding_waiting, aside, num_aside)
        num_aside = len(aside) - num_aside
        if num_waiting - num_holding > num_aside:
            return _first_left(scheduler.waiting, aside, num_aside)
        return None

    def holds_blocks(self, request: Any) -> bool:
        """Returns whether a waiting request holds KV blocks."""
        return request.status is self._loading or request.num_computed_tokens > 0

    def _note(self, request: Any, reason: SkipReason | None) -> None:
        life = self._lives.get(request.request_id)
        if life is not None and reason is not None and life.skipped_for is not reason:
            life.skipped_for = reason
            self._on_skip(life, reason)


def _first_left(queue: Any, aside: list[Any], num_aside: int) -> Any:
    """Returns the first request of a queue that was not set aside in this step.

    Those set aside stand at the front again where the order is that of arrival; in a heap they
    may be anywhere, and the few nodes around them are looked at.
    """
    heap = getattr(queue, "_heap", None)
    if heap is None:
        return queue[num_aside]
    if not num_aside:
        return heap[0]
    gone = set(map(id, aside))
    border, best = [0], None
    while border:
        index = border.pop()
        if index >= len(heap):
            continue
        request = heap[index]
        if id(request) in gone:
            border += (2 * index + 1, 2 * index + 2)
        elif best is None or request < best:
            best = request
    return best
