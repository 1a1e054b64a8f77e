"""The array path: requests at the front of the running list that just decode, kept as columns.

Most of what a busy engine does is decoding: a request has one token to do, gets it, and a step
later has one token to do. Such requests are rows here, in the order of the running list, and what
grows by one a step is not stored at all:

    num_computed_tokens = offset + num_scheduled      num_scheduled, num_taken: steps so far,
    num_tokens          = offset + num_taken + 1      the same for all rows

The columns say when something happens to a row, in these step numbers; a step in which nothing
happens to a row does not touch it:

    phase    num_scheduled % block_size at which it needs a block; its known tokens fill one where
             (num_taken + 1) % block_size is the same
    end_at   num_taken with which it reaches max_tokens or max_model_len
    eos      token that ends it, or NO_TOKEN
    slot     its place in the ring of new tokens, for as long as it is a row

Between two steps `num_scheduled` is ahead of `num_taken` by the steps in flight: none, or one with
asynchronous scheduling. A row whose last token is in flight is given nothing more; it `rests` as an
ordinary request at its place among the rows until that token comes.

While a request is a row, its object lags behind: `settle` brings it up to date, and whoever takes
a row away (a finish, a preemption, a grant that is not one token) does so first. This is an
optimisation of the ordinary scans and decides nothing that they would not decide; whatever is
unusual dissolves the rows and goes the ordinary way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from engine.config import EngineConfig
from engine.request import Request
from engine.scheduler.decode_order import NO_ROWS, Int32s
from engine.scheduler.token_gaps import TokenGaps

NO_TOKEN = -1
"""An `eos` that no sampled token equals."""


def may_use_rows(config: EngineConfig) -> bool:
    """Whether a running engine's decodes are as simple as the rows take them to be.

    One group that keeps all tokens, one token a request and step, blocks that are freed at once.
    """
    (group, *others), speculation = config.cache.kv_groups, config.speculation
    return not (
        others
        or group.kind != "full"
        or config.scheduler.pp_size > 1
        or (config.scheduler.async_scheduling and config.kv_connector is not None)
        or speculation.draft_slots_per_request
        or speculation.num_speculative_tokens
        or speculation.num_lookahead_tokens
        or speculation.prefill_lookahead
    )


class DecodeRows:
    """The rows, the steps they have seen, and the new tokens that their objects lack.

    Invariants:
        Rows and resting requests together are the first of the running list, in its order.
        Each row takes part in all steps of `in_flight`, and has since it joined in every step.
        `num_scheduled - num_taken == len(in_flight)`.

    Args:
        is_off: no request ever becomes a row.
        is_async: objects count the outputs that are in flight.
    """

    def __init__(
        self,
        *,
        is_off: bool,
        is_async: bool,
        block_size: int,
        max_num_seqs: int,
        max_model_len: int,
    ) -> None:
        self.is_off = is_off
        self.in_flight: list[int] = []
        """Steps that are scheduled and not taken in, oldest first."""
        self.resting: dict[Request, None] = {}
        """Requests among the rows that are none, as their last token is in flight."""
        self._is_async = is_async
        self.order = NO_ROWS
        self.num_scheduled = 0
        self.num_taken = 0
        self._block_size = block_size
        self._max_model_len = max_model_len
        self._num_stopping = 0
        self._stop_ids: Counter[int] = Counter()
        self._ring_length = 8 * block_size  # at least a block; a longer one wraps less often
        self._ring = np.zeros((max_num_seqs, self._ring_length), dtype=np.int32)
        self._free_slots = list(range(max_num_seqs - 1, -1, -1))
        self._flushed = [0] * max_num_seqs
        self._gaps = TokenGaps()

    def __len__(self) -> int:
        return len(self.order.requests)

    @property
    def can_go_on(self) -> bool:
        """Whether another step may be decided for the rows before those in flight are over."""
        return self._is_async or not self.in_flight

    @property
    def num_in_front(self) -> int:
        """How many of the running requests, from the first, the ordinary scan may pass over."""
        return len(self.order.requests) + len(self.resting)

    # ---------------------------------------------------------------------- joining and leaving

    def join(self, requests: list[Request]) -> None:
        """Makes requests rows, behind those that are.

        Each has one token to do, takes part in the same steps in flight as the others, and has the
        blocks of its computed tokens and no more.
        """
        if not self.order.requests:
            self.in_flight = list(requests[0].in_flight)
            self.num_scheduled, self.num_taken = len(self.in_flight), 0
            self._gaps = TokenGaps()
        self.order = self.order.with_rows(requests, [self._enter(request) for request in requests])

    def _enter(self, request: Request) -> tuple[int, ...]:
        """Counts a new row and returns its columns."""
        slot = self._free_slots.pop()
        request.slot = slot
        self._flushed[slot] = self.num_taken
        self._gaps.join(request, self.num_taken)
        sampling = request.sampling
        offset = request.num_computed_tokens - self.num_scheduled
        phase = -offset % self._block_size
        if sampling.stop_token_ids:
            self._num_stopping += 1
            self._stop_ids.update(sampling.stop_token_ids)
        length = min(request.num_prompt_tokens + sampling.max_tokens, self._max_model_len)
        eos = NO_TOKEN if sampling.ignore_eos else request.eos_token_id
        end_at = length - offset - 1
        return (offset, phase, end_at, NO_TOKEN if eos is None else eos, slot, request.number)

    def _leave(self, request: Request, offset: int) -> None:
        """Brings a request up to date, and forgets that it was a row."""
        assert request.slot is not None
        self._settle(request, offset)
        self._gaps.leave(request)
        self._free_slots.append(request.slot)
        request.slot = None
        if request.sampling.stop_token_ids:
            self._num_stopping -= 1
            self._stop_ids.subtract(request.sampling.stop_token_ids)

    def remove(self, rows: Sequence[int]) -> None:
        """Makes rows ordinary requests, which leave the running list too; ascending."""
        for row in rows:
            self._leave(self.order.requests[row], int(self.order.offset[row]))
        self.order = self.order.without(rows)

    def rest(self, rows: Sequence[int]) -> None:
        """Makes rows ordinary requests that keep their places; ascending."""
        if not rows:
            return
        requests = [self.order.requests[row] for row in rows]
        self.remove(rows)
        self.resting.update(dict.fromkeys(requests))

    def dissolve(self) -> None:
        """Makes all rows ordinary requests."""
        self.resting.clear()
        self.keep_first(0)
        self.in_flight = []

    def keep_first(self, count: int) -> None:
        """Makes all rows behind the first so many ordinary requests; all, where some rest."""
        order = self.order
        if self.resting:
            self.resting.clear()
            count = 0
        if count < len(order.requests):
            offsets = order.offset[count:].tolist()
            for request, offset in zip(order.requests[count:], offsets, strict=True):
                self._leave(request, offset)
            self.order = order.first(count)

    def row_of(self, request: Request) -> int:
        """Returns a request's row; it has to be one, which its `slot` says."""
        return self.order.requests.index(request)

    # ---------------------------------------------------------------------------------- the step

    def that_need_a_block(self) -> list[int]:
        """Returns the rows whose blocks are full."""
        return self.order.at_phase(self.num_scheduled % self._block_size)

    def that_fill_a_block(self) -> list[int]:
        """Returns the rows whose newest token is the last one of a block."""
        return self.order.at_phase((self.num_taken + 1) % self._block_size)

    def that_filled_a_block(self) -> list[int]:
        """Returns the rows whose newest computed token was the last one of a block.

        Only where no step is in flight that was to enter it: with two steps in flight, the next.
        """
        if not self._is_async or self.in_flight:
            return []
        return self.order.at_phase(self.num_taken % self._block_size)

    def that_reach_their_end(self) -> list[int]:
        """Returns the rows that a step in flight brings to their end."""
        return self.order.ended_by(self.num_scheduled) if self.in_flight else []

    def scheduled(self, step: int) -> None:
        """A step with a token of each row is on its way."""
        self.num_scheduled += 1
        self.in_flight.append(step)

    def flushed(self, rows: list[int]) -> list[Request]:
        """Returns the requests of rows, with all their tokens; their other fields still lag."""
        requests = [self.order.requests[row] for row in rows]
        for request in requests:
            self._flush(request)
        return requests

    def take(self, step: int, token_ids: Int32s, ts: int) -> list[int]:
        """Appends a step's token to each row; returns the rows that it may end, ascending.

        Args:
            token_ids: `[num_rows]`.
            ts: when they came.
        """
        order = self.order
        self._ring[:, self.num_taken % self._ring_length][order.slot] = token_ids
        self.num_taken += 1
        self.in_flight.remove(step)
        self._gaps.took(self.num_taken, ts)
        rows = order.ended_by(self.num_taken)
        said_eos = order.eos == token_ids
        if b"\1" in said_eos.tobytes():  # a third of the time of count_nonzero
            rows = sorted({*rows, *said_eos.nonzero()[0].tolist()})
        if self._num_stopping:
            rows = sorted({*rows, *self._that_stop(token_ids.tolist())})
        return rows

    def _that_stop(self, token_ids: list[int]) -> Iterable[int]:
        if any(map(self._stop_ids.get, token_ids)):
            for row, request in enumerate(self.order.requests):
                if token_ids[row] in request.sampling.stop_token_ids:
                    yield row

    # ------------------------------------------------------------------------ the objects behind

    def settle(self) -> None:
        """Brings the objects of all rows up to date; they stay rows."""
        offsets = self.order.offset.tolist()
        for request, offset in zip(self.order.requests, offsets, strict=True):
            self._settle(request, offset)

    def _settle(self, request: Request, offset: int) -> None:
        request.num_computed_tokens = offset + self.num_scheduled
        if self._is_async:
            request.num_output_placeholders = len(self.in_flight)
            earlier = request.in_flight
            request.in_flight = {step: earlier.get(step, 1) for step in self.in_flight}
        self._gaps.settle(request)
        self._flush(request)

    def settle_row(self, row: int) -> Request:
        """Brings the object of a row up to date and returns it."""
        request = self.order.requests[row]
        self._settle(request, int(self.order.offset[row]))
        return request

    def _flush(self, request: Request) -> None:
        """Appends to a request the tokens that only the ring has."""
        slot = request.slot
        assert slot is not None
        num_lacking = self.num_taken - self._flushed[slot]
        if num_lacking == 0:
            return
        self._flushed[slot] = self.num_taken
        end = (self.num_taken - 1) % self._ring_length + 1
        if num_lacking > end:
            request.token_ids.frombytes(self._ring[slot, end - num_lacking :].tobytes())
            num_lacking = end
        request.token_ids.frombytes(self._ring[slot, end - num_lacking : end].tobytes())
