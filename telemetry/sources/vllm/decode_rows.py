"""Dense rows of steps in which all running requests are served, nearly all of them with one token.

In plain decoding nothing changes from one step to the next but a token each: columns are kept and
moved on as long as that is so. Where a few others compute prompts beside them, or what they have
lost, the columns are made of what all have in common and put right for those few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.records import NULLS, StepRequests
from telemetry.sources.vllm.blocks import Blocks
from telemetry.sources.vllm.lives import Life, Lives

NO_REASON = 255
NULL = NULLS["u4"]
MAX_OTHERS = 16
"""Requests beside the decoding ones that are put right one by one."""

U32 = npt.NDArray[np.uint32]
_ONE = np.uint32(1)


class DecodeRows:
    """Makes such rows for one scheduler; there are no drafts.

    Invariants:
        Rows that were given away are not changed: their step may not have been handed over.
    """

    def __init__(self, scheduler: Any, lives: Lives, blocks: Blocks | None) -> None:
        self._lives = lives
        self._blocks = blocks
        self._members: list[Any] = []
        self._numbers = np.zeros(0, np.uint32)
        """The numbers of `_members`."""
        self._next: U32 | None = None
        """What the members have computed when the next step is decided, where that is known."""
        self._is_sync = not scheduler.scheduler_config.async_scheduling
        self._block_size = None if blocks is None else _foretold_block_size(scheduler, blocks)

    def forget(self) -> None:
        """A step of another kind comes between."""
        self._next = None

    def of_all(self, running: list[Any]) -> StepRequests:
        """Returns the rows of a step in which each running request has one token."""
        computed = self._next
        if computed is None or running != self._members:
            computed = _column([request.num_computed_tokens for request in running])
        known = self._known(running, computed)
        self._next = known if self._is_sync else None
        ones, no_drafts, no_reasons = _constants(len(running))
        return StepRequests(
            request=self._numbers_of(running),
            num_wanted_tokens=ones,
            num_scheduled_tokens=ones,
            num_computed_tokens=computed,
            num_known_tokens=known,
            num_blocks=self._held(running, computed),
            num_drafts=no_drafts,
            zero_reason=no_reasons,
        )

    def of_most(
        self, running: list[Any], others: Mapping[str, Life], output: Any
    ) -> StepRequests | None:
        """Returns the rows of a step in which all but the `others` have one token.

        None where it is not so.
        """
        self._next = None
        scheduled: dict[str, int] = output.num_scheduled_tokens
        ones, no_drafts, no_reasons = _constants(len(running))
        wanted, given = ones.copy(), ones.copy()
        computed = _column([request.num_computed_tokens for request in running])
        known = self._known(running, computed)
        held = self._held(running, computed)
        for name, life in others.items():
            request = life.request
            if name not in scheduled:
                return None
            place = running.index(request)
            given[place], known[place] = scheduled[name], request.num_tokens
            wanted[place] = num_wanted(request, 0)
            if held is not None and self._blocks is not None:
                held[place] = self._blocks.num_held(name)
        if int(given.sum()) != output.total_num_scheduled_tokens:
            return None
        return StepRequests(
            request=self._numbers_of(running),
            num_wanted_tokens=wanted,
            num_scheduled_tokens=given,
            num_computed_tokens=computed,
            num_known_tokens=known,
            num_blocks=held,
            num_drafts=no_drafts,
            zero_reason=no_reasons,
        )

    def _known(self, running: list[Any], computed: U32) -> U32:
        """Returns the known tokens of decoding requests; with steps in flight these lag behind."""
        if self._is_sync:
            return computed + _ONE
        return _column([request.num_tokens for request in running])

    def _held(self, running: list[Any], computed: U32) -> U32 | None:
        if self._blocks is None:
            return None
        if self._block_size is None:
            return self._blocks.all_held([request.request_id for request in running])
        return (computed + self._block_size) // self._block_size

    def _numbers_of(self, running: list[Any]) -> U32:
        if running != self._members:
            self._members = running[:]
            self._numbers = numbers_of(self._lives, [each.request_id for each in running])
        return self._numbers


def num_wanted(request: Any, num_drafts: int) -> int:
    """Returns the tokens that a request could have used, with drafts."""
    known = request.num_tokens + request.num_output_placeholders + num_drafts
    wanted: int = known - request.num_computed_tokens
    return max(0, wanted)


def numbers_of(lives: Lives, request_ids: Sequence[str]) -> U32:
    """Returns the numbers of requests in the record; NULL where an arrival was not seen."""
    by_id = lives.by_id
    return _column([by_id[name].number if name in by_id else NULL for name in request_ids])


@lru_cache(maxsize=64)
def _constants(num_rows: int) -> tuple[U32, npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Returns the columns that are the same for all decodes: one token, no drafts, no reason."""
    return (
        np.ones(num_rows, np.uint32),
        np.zeros(num_rows, np.uint16),
        np.full(num_rows, NO_REASON, np.uint8),
    )


def _foretold_block_size(scheduler: Any, blocks: Blocks) -> np.uint32 | None:
    """Returns the block size where a decoding request holds just what its tokens fill."""
    size = blocks.plain_block_size
    if size is None or scheduler.num_spec_tokens or scheduler.connector is not None:
        return None
    return np.uint32(size)


def _column(values: Iterable[int]) -> U32:
    return np.array(values, dtype=np.uint32)
