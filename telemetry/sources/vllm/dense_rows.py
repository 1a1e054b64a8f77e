"""A decided step as dense rows: one a running request, those that were given tokens first.

In plain decoding nothing changes from one step to the next but a token each, so columns are kept
and moved on as long as that is so; otherwise they are read from the requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.records import StepRequests
from telemetry.sources.vllm.blocks import Blocks
from telemetry.sources.vllm.lives import Lives
from telemetry.vocabulary import ZeroReason

NO_REASON = 255
U32 = npt.NDArray[np.uint32]


class DenseRows:
    """Makes the dense rows of one scheduler's steps.

    Asked once a step is decided, before anybody's progress is advanced.
    """

    def __init__(self, scheduler: Any, lives: Lives, blocks: Blocks | None) -> None:
        self._scheduler = scheduler
        self._lives = lives
        self._blocks = blocks
        self._members: list[str] = []
        self._numbers: U32 = _column(())

    def rows(self, output: Any, zeros: Iterable[tuple[Any, ZeroReason | None]]) -> StepRequests:
        """Returns the rows of a step; `zeros` are those who were given nothing, and why."""
        scheduled: dict[str, int] = output.num_scheduled_tokens
        nothing = list(zeros)
        is_plain = output.total_num_scheduled_tokens == len(scheduled)
        if is_plain and not nothing and not self._lives.proposed:
            return self._decodes(scheduled)
        return self._mixed(scheduled, output.scheduled_spec_decode_tokens, nothing)

    def _decodes(self, scheduled: dict[str, int]) -> StepRequests:
        """Returns the rows of a step in which each request has one token."""
        requests = self._scheduler.requests
        members = list(scheduled)
        if members != self._members:
            self._members, self._numbers = members, self._numbers_of(members)
        num = len(members)
        ones = np.ones(num, np.uint32)
        found = [requests[name] for name in members]
        return StepRequests(
            request=self._numbers,
            num_wanted_tokens=_column([_wanted(r, 0) for r in found])
            if self._lives.computing
            else ones,
            num_scheduled_tokens=ones,
            num_computed_tokens=_column([r.num_computed_tokens for r in found]),
            num_known_tokens=_column([r.num_tokens for r in found]),
            num_blocks=self._held(members),
            num_drafts=np.zeros(num, np.uint16),
            zero_reason=np.full(num, NO_REASON, np.uint8),
        )

    def _mixed(
        self,
        scheduled: dict[str, int],
        drafts: dict[str, list[int]],
        nothing: list[tuple[Any, ZeroReason | None]],
    ) -> StepRequests:
        requests = self._scheduler.requests
        members = [*scheduled, *(request.request_id for request, _ in nothing)]
        found = [requests[name] for name in members]
        num_drafts = [len(drafts.get(name, ())) for name in members]
        wished = self._drafts_wished(members, num_drafts, len(scheduled))
        reasons = [NO_REASON] * len(scheduled)
        reasons += [NO_REASON if reason is None else reason for _, reason in nothing]
        return StepRequests(
            request=self._numbers_of(members),
            num_wanted_tokens=_column(
                [_wanted(r, n) for r, n in zip(found, wished, strict=True)]
            ),
            num_scheduled_tokens=_column([*scheduled.values(), *[0] * len(nothing)]),
            num_computed_tokens=_column([r.num_computed_tokens for r in found]),
            num_known_tokens=_column([r.num_tokens for r in found]),
            num_blocks=self._held(members),
            num_drafts=np.array(num_drafts, np.uint16),
            zero_reason=np.array(reasons, np.uint8),
        )

    def _drafts_wished(
        self, members: list[str], num_drafts: list[int], num_served: int
    ) -> list[int]:
        """Returns the drafts that each request came with, also where not all of them fitted."""
        proposed = self._lives.proposed
        if not proposed:
            return num_drafts
        served = zip(members[:num_served], num_drafts, strict=False)
        wished = [max(num, proposed.pop(name, 0)) for name, num in served]
        return wished + num_drafts[num_served:]

    def _numbers_of(self, members: list[str]) -> U32:
        by_id = self._lives.by_id
        return _column([by_id[name].number if name in by_id else 0xFFFFFFFF for name in members])

    def _held(self, members: list[str]) -> U32 | None:
        return None if self._blocks is None else self._blocks.all_held(members)


def with_accepted(rows: StepRequests, accepted: dict[int, int]) -> StepRequests:
    """Returns the dense rows with how many drafts of each request were right."""
    numbers = [accepted.get(int(number), 0) for number in rows.request]
    return replace(rows, num_accepted=np.array(numbers, dtype=np.uint16))


def _wanted(request: Any, num_drafts: int) -> int:
    """Returns the tokens that a request could have used; its drafts left it when it was served."""
    known = request.num_tokens_with_spec + request.num_output_placeholders + num_drafts
    return max(0, known - request.num_computed_tokens)


def _column(values: Iterable[int]) -> U32:
    return np.array(values, dtype=np.uint32)
