"""Listening to vLLM's `allocate_slots` only while it can say no, or somebody may be admitted.

It is called for each running request in each step, and in most steps the pool has more free blocks
than all of them together could ask for. Then the running scan is not listened to; the first waiting
request that is looked at turns listening on again. And while it is on, the journal is told of a
running request only where the answer matters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from telemetry.sources.vllm.guard import Guard
from telemetry.sources.vllm.lives import Lives
from telemetry.sources.vllm.running import RunningScan

NAME = "allocate_slots"
KINDS = frozenset({"FullAttentionManager", "SlidingWindowManager"})
"""Kinds of KV groups whose requests take no more blocks than their tokens fill, and one more."""


class AllocationWatch:
    """Turns the hook of one KV cache manager on and off.

    Invariants:
        Where somebody else has replaced the method, it is left as it is.

    Args:
        running: status of a request that runs.
        hook: is given the answer and the arguments.
    """

    def __init__(
        self,
        scheduler: Any,
        lives: Lives,
        running: Any,
        scan: RunningScan,
        hook: Callable[..., None],
        guard: Guard,
    ) -> None:
        """Turns listening on."""
        self._scheduler = scheduler
        self._lives = lives
        self._manager = scheduler.kv_cache_manager
        self._plain = getattr(self._manager, NAME)
        self._listening = _listening(self._plain, running, scan, hook, guard)
        groups = self._manager.coordinator.single_type_managers
        self._num_groups = len(groups)
        self._block_size = min(group.block_size for group in groups)
        is_simple = {type(group).__name__ for group in groups} <= KINDS
        self._may_pause = is_simple and scheduler.lora_config is None
        self.is_on = True
        setattr(self._manager, NAME, self._listening)

    def begin(self) -> None:
        """A step begins: listens if a running request may be refused."""
        if not self._may_pause:
            return
        now = getattr(self._manager, NAME)
        if now is self._listening and not self._may_refuse():
            setattr(self._manager, NAME, self._plain)
            self.is_on = False
        elif now == self._plain:
            self.is_on = False
            if self._may_refuse():
                self.turn_on()
        else:
            self.is_on = True

    def turn_on(self) -> None:
        """Listens from now on."""
        if not self.is_on:
            setattr(self._manager, NAME, self._listening)
            self.is_on = True

    def _may_refuse(self) -> bool:
        """Whether all running requests together could ask for more blocks than are free.

        Who decodes takes one more block at most, with drafts a few; the others share the budget.
        """
        scheduler, lives, block_size = self._scheduler, self._lives, self._block_size
        ahead = scheduler.num_spec_tokens + scheduler.num_lookahead_tokens
        most = (1 + -(-ahead // block_size)) * len(scheduler.running)
        if lives.computing or len(lives.by_id) < len(scheduler.running):
            most += scheduler.max_num_scheduled_tokens // block_size + len(scheduler.running)
        free = self._manager.block_pool.get_num_free_blocks()
        return bool(free <= self._num_groups * most)


def _listening(
    original: Callable[..., Any],
    running: Any,
    scan: RunningScan,
    hook: Callable[..., None],
    guard: Guard,
) -> Callable[..., Any]:
    """Returns a method that answers as `original` does, and tells of the answers that matter."""

    @functools.wraps(original)
    def allocate_slots(request: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = original(request, *args, **kwargs)
        is_plain = blocks is not None and request.status is running and not scan.hears_all
        if not is_plain and guard.is_on:
            try:
                hook(blocks, request, *args, **kwargs)
            except Exception as error:  # the telemetry edge
                guard.failed("after_allocate_slots", error)
        return blocks

    return allocate_slots
