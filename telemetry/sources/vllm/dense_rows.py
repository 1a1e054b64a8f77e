"""A decided step as dense rows: one a running request, those that were given tokens first.

Where nearly all requests just decode, `decode_rows` makes them; otherwise they are read here, from
each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from telemetry.records import StepRequests
from telemetry.sources.vllm.blocks import Blocks
from telemetry.sources.vllm.decode_rows import (
    MAX_OTHERS,
    NO_REASON,
    U32,
    DecodeRows,
    num_wanted,
    numbers_of,
)
from telemetry.sources.vllm.lives import Life, Lives
from telemetry.vocabulary import ZeroReason


class DenseRows:
    """Makes the dense rows of one scheduler's steps.

    Asked once a step is decided, before anybody's progress is advanced.
    """

    def __init__(self, scheduler: Any, lives: Lives, blocks: Blocks | None) -> None:
        self._scheduler = scheduler
        self._lives = lives
        self._blocks = blocks
        self._decodes = DecodeRows(scheduler, lives, blocks)
        self._is_sync = not scheduler.scheduler_config.async_scheduling

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
        scheduler, others = self._scheduler, self._lives.computing
        nothing = list(zeros)
        if not nothing and not scheduler.num_spec_tokens:
            if not others and output.total_num_scheduled_tokens == len(scheduler.running):
                return self._decodes.of_all(scheduler.running)
            if len(others) <= MAX_OTHERS:
                rows = self._decodes.of_most(scheduler.running, others, output)
                if rows is not None:
                    return rows
        self._decodes.forget()
        return self._mixed(output, nothing, admitted)

    def _mixed(
        self,
        output: Any,
        nothing: list[tuple[Any, ZeroReason | None]],
        admitted: Mapping[str, Life],
    ) -> StepRequests:
        """Returns the rows of any step, each read from its request."""
        scheduled: dict[str, int] = output.num_scheduled_tokens
        drafts: dict[str, list[int]] = output.scheduled_spec_decode_tokens
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
            request=numbers_of(self._lives, members),
            num_wanted_tokens=_column(
                [num_wanted(r, n) for r, n in zip(found, wished, strict=True)]
            ),
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

    def _held(self, members: list[str]) -> U32 | None:
        return None if self._blocks is None else self._blocks.all_held(members)


def with_accepted(rows: StepRequests, accepted: dict[int, int]) -> StepRequests:
    """Returns the dense rows with how many drafts of each request were right."""
    numbers = [accepted.get(int(number), 0) for number in rows.request]
    return replace(rows, num_accepted=np.array(numbers, dtype=np.uint16))


def _column(values: Iterable[int]) -> U32:
    return np.array(values, dtype=np.uint32)
