"""Who is on the array path, in order, with a column for each thing that happens to a row one day.

What the columns mean stands in `decode_rows`. Nobody changes an order: the output of a step keeps
the one that it was decided with, while the rows have gone on to another.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine.request import Request

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

_NUM_COLUMNS = 6


class DecodeOrder:
    """Who the rows are and their columns, `[num_rows]` each. It never changes; a change makes anew.

    A step's output keeps the order it was decided with.
    """

    def __init__(
        self, requests: list[Request], columns: Int64s, next_end: int, *, has_grammars: bool
    ) -> None:
        self.requests = requests
        self._has_grammars = has_grammars
        self.columns = columns
        self.offset: Int64s = columns[0]
        self.phase: Int64s = columns[1]
        self.end_at: Int64s = columns[2]
        self.eos: Int32s = columns[3].astype(np.int32)
        self.slot: Int64s = columns[4]
        self.number: Int64s = columns[5]
        self.next_end = next_end
        """No row has an earlier `end_at`."""
        self._at_phase: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def request_ids(self) -> list[str]:
        """The rows' ids."""
        return [request.request_id for request in self.requests]

    @cached_property
    def offset32(self) -> Int32s:
        """`offset`, half as wide; `[num_rows]`."""
        return self.offset.astype(np.int32)

    @cached_property
    def number32(self) -> npt.NDArray[np.uint32]:
        """The rows' numbers, as the record has them; `[num_rows]`."""
        return self.number.astype(np.uint32)

    @cached_property
    def adapters(self) -> frozenset[str]:
        """Adapters that the rows need."""
        return frozenset(r.adapter for r in self.requests if r.adapter is not None)

    @cached_property
    def structured(self) -> tuple[Request, ...]:
        """Rows whose outputs a grammar constrains."""
        if not self._has_grammars:
            return ()
        return tuple(request for request in self.requests if request.grammar is not None)

    def at_phase(self, phase: int) -> list[int]:
        """Returns the rows with this phase, ascending; looked up once."""
        rows = self._at_phase.get(phase)
        if rows is None:
            rows = self._at_phase[phase] = (self.phase == phase).nonzero()[0].tolist()
        return rows

    def ended_by(self, step: int) -> list[int]:
        """Returns the rows whose `end_at` is not after a step, ascending."""
        if self.next_end > step:
            return []
        rows: list[int] = (self.end_at <= step).nonzero()[0].tolist()
        if not rows:
            self.next_end = int(self.end_at.min(initial=sys.maxsize))
        return rows

    def with_rows(self, requests: list[Request], columns: Sequence[tuple[int, ...]]) -> DecodeOrder:
        """Returns the order with rows added at its end."""
        added = np.array(columns, dtype=np.int64).T
        return DecodeOrder(
            self.requests + requests,
            np.concatenate((self.columns, added), axis=1),
            min(self.next_end, *added[2].tolist()),
            has_grammars=self._has_grammars or any(each.grammar is not None for each in requests),
        )

    def first(self, count: int) -> DecodeOrder:
        """Returns the order of the first rows alone."""
        return self._with_less(self.requests[:count], self.columns[:, :count])

    def without(self, rows: Sequence[int]) -> DecodeOrder:
        """Returns the order without some rows, given in ascending order."""
        if rows[0] == len(self.requests) - len(rows):
            return self.first(rows[0])
        keep = np.ones(len(self.requests), dtype=np.bool_)
        keep[rows] = False
        requests = self.requests.copy()
        for row in reversed(rows):
            del requests[row]
        return self._with_less(requests, self.columns.take(keep.nonzero()[0], axis=1))

    def _with_less(self, requests: list[Request], columns: Int64s) -> DecodeOrder:
        return DecodeOrder(requests, columns, self.next_end, has_grammars=self._has_grammars)


NO_ROWS = DecodeOrder(
    [], np.empty((_NUM_COLUMNS, 0), dtype=np.int64), sys.maxsize, has_grammars=False
)
