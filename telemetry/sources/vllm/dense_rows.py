"""A decided step as dense rows: one a running request, those that were given tokens first.

In plain decoding nothing changes from one step to the next but a token each, so columns are kept
and moved on as long as that is so; otherwise they are read from the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.records import NULLS, StepRequests
from telemetry.sources.vllm.blocks import Blocks
from telemetry.sources.vllm.lives import Life, Lives
from telemetry.vocabulary import ZeroReason

NO_REASON = 255
NULL = NULLS["u4"]
U32 = npt.NDArray[np.uint32]
_ONE = np.uint32(1)


class DenseRows:
    """Makes the dense rows of one scheduler's steps.

    Asked once a step is decided, before anybody's progress is advanced.
    """

    def __init__(self, scheduler: Any, lives: Lives, blocks: Blocks | None) -> None:
        self._scheduler = scheduler
        self._lives = lives
        self._blocks = blocks
        self._members: list[Any] = []
        """Who was in the last step, where all decoded."""
        self._last: StepRequests | None = None
        self._is_sync = not scheduler.scheduler_config.async_scheduling
        self._may_move_on = self._is_sync and not scheduler.num_spec_tokens
        self._block_size = None if blocks is None else _foretold_block_size(scheduler, blocks)

    def rows(
        self,
        output: Any,
        zeros: Iterable[tuple[Any, ZeroReason | None]],
        admitted: Mapping[str, Life],
    ) -> StepRequests:
        """Returns the rows of a step.

        Args:
            zeros: running requests that were given nothing, and why.
            admitted: requests that joined the running ones in this step.
        """
        scheduled: dict[str, int] = output.num_scheduled_tokens
        nothing = list(zeros)
        is_plain = output.total_num_scheduled_tokens == len(scheduled)
        if is_plain and not (nothing or admitted or self._lives.proposed or self._lives.computing):
            return self._decodes(self._scheduler.running)
        self._members, self._last = [], None
        return self._mixed(scheduled, output.scheduled_spec_decode_tokens, nothing, admitted)

    def _decodes(self, running: list[Any]) -> StepRequests:
        """Returns the rows of a step in which each running request has one token."""
        last = self._last
        if running == self._members and last is not None:
            return self._moved_on(last)
        self._members = running[:]
        num = len(running)
        ones = np.ones(num, np.uint32)
        self._last = StepRequests(
            request=self._numbers_of([request.request_id for request in running]),
            num_wanted_tokens=ones,
            num_scheduled_tokens=ones,
            num_computed_tokens=_column([request.num_computed_tokens for request in running]),
            num_known_tokens=_column([request.num_tokens for request in running]),
            num_blocks=self._held([request.request_id for request in running]),
            num_drafts=np.zeros(num, np.uint16),
            zero_reason=np.full(num, NO_REASON, np.uint8),
        )
        return self._last

    def _moved_on(self, last: StepRequests) -> StepRequests:
        """Returns the rows of the same requests one step on.

        The rows of the step before may not have been handed over: they are not changed.
        """
        running = self._members
        if self._may_move_on and last.num_known_tokens is not None:
            computed = last.num_known_tokens
            known = computed + _ONE
        else:
            computed = _column([request.num_computed_tokens for request in running])
            known = _column([request.num_tokens for request in running])
        if self._block_size is None:
            held = self._held([request.request_id for request in running])
        else:
            held = (computed + self._block_size) // self._block_size
        self._last = StepRequests(
            request=last.request,
            num_wanted_tokens=last.num_wanted_tokens,
            num_scheduled_tokens=last.num_scheduled_tokens,
            num_computed_tokens=computed,
            num_known_tokens=known,
            num_blocks=held,
            num_drafts=last.num_drafts,
            zero_reason=last.zero_reason,
        )
        return self._last

    def _mixed(
        self,
        scheduled: dict[str, int],
        drafts: dict[str, list[int]],
        nothing: list[tuple[Any, ZeroReason | None]],
        admitted: Mapping[str, Life],
    ) -> StepRequests:
        requests = self._scheduler.requests
        members = [*scheduled, *(request.request_id for request, _ in nothing)]
        found = [requests[name] for name in members]
        num_drafts = [len(drafts.get(name, ())) for name in members]
        wished = [
            0 if name in admitted else num for name, num in zip(members, num_drafts, strict=True)
        ]
        self._add_unplaced(wished, list(scheduled), admitted)
        for index, (request, _) in enumerate(nothing, len(scheduled)):
            wished[index] = len(request.spec_token_ids)
        reasons = [NO_REASON] * len(scheduled)
        reasons += [NO_REASON if reason is None else reason for _, reason in nothing]
        return StepRequests(
            request=self._numbers_of(members),
            num_wanted_tokens=_column([_wanted(r, n) for r, n in zip(found, wished, strict=True)]),
            num_scheduled_tokens=_column([*scheduled.values(), *[0] * len(nothing)]),
            num_computed_tokens=_column([r.num_computed_tokens for r in found]),
            num_known_tokens=_column([r.num_tokens for r in found]),
            num_blocks=self._held(members),
            num_drafts=np.array(num_drafts, np.uint16),
            zero_reason=np.array(reasons, np.uint8),
        )

    def _add_unplaced(
        self, wished: list[int], served: list[str], admitted: Mapping[str, Life]
    ) -> None:
        """Counts the drafts that the served ones came with, also where not all of them fitted.

        With steps in flight each request that decodes comes with as many as there can be.
        """
        proposed = self._lives.proposed
        foreseen = 0 if self._is_sync else self._scheduler.num_spec_tokens
        if not (proposed or foreseen):
            return
        for index, name in enumerate(served):
            num_proposed = proposed.pop(name, 0)
            if name not in self._lives.computing:
                num_proposed = max(num_proposed, foreseen)
            if name not in admitted:
                wished[index] = max(wished[index], num_proposed)

    def _numbers_of(self, members: list[str]) -> U32:
        by_id = self._lives.by_id
        return _column([by_id[name].number if name in by_id else NULL for name in members])

    def _held(self, members: list[str]) -> U32 | None:
        return None if self._blocks is None else self._blocks.all_held(members)


def _foretold_block_size(scheduler: Any, blocks: Blocks) -> np.uint32 | None:
    """Returns the block size where a decoding request holds just what its tokens fill."""
    size = blocks.plain_block_size
    if size is None or scheduler.num_spec_tokens or scheduler.connector is not None:
        return None
    return np.uint32(size)


def with_accepted(rows: StepRequests, accepted: dict[int, int]) -> StepRequests:
    """Returns the dense rows with how many drafts of each request were right."""
    numbers = [accepted.get(int(number), 0) for number in rows.request]
    return replace(rows, num_accepted=np.array(numbers, dtype=np.uint16))


def _wanted(request: Any, num_drafts: int) -> int:
    """Returns the tokens that a request could have used, with drafts."""
    known = request.num_tokens + request.num_output_placeholders + num_drafts
    wanted: int = known - request.num_computed_tokens
    return max(0, wanted)


def _column(values: Iterable[int]) -> U32:
    return np.array(values, dtype=np.uint32)
