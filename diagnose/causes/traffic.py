"""The requests around a moment: when each came and left, and how large it was.

Read once as columns and asked questions in numpy: how many were in the engine, how many blocks
they fill at full length, in which order their sizes came.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diagnose.facts import EngineSettings
from diagnose.reading import QueryLog, Scope

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OPEN = np.iinfo(np.int64).max
"""Stands in `left_ts` for a request that is still there, and only there."""

TRAFFIC_SQL = """
SELECT request::BIGINT AS request, ts AS arrived_ts,
       CASE WHEN finished_ts <= {end} THEN finished_ts END AS left_ts,
       num_prompt_tokens::BIGINT AS num_prompt_tokens,
       CASE WHEN finished_ts <= {end} THEN num_output_tokens::BIGINT END AS num_output_tokens,
       max_tokens::BIGINT AS max_tokens, coalesce(priority, 0)::BIGINT AS priority,
       num_shared_tokens::BIGINT AS num_shared_tokens, adapter
FROM requests
WHERE engine = {engine} AND ts <= {end} AND coalesce(finished_ts, {end}) >= {start}
  AND finish_reason IS DISTINCT FROM 'refused'
ORDER BY ts, request
"""


@dataclass(frozen=True)
class Traffic:
    """Requests in order of arrival: one entry a request in every array, int64.

    `num_output_tokens` is -1 while a request is open, `max_tokens` and `num_shared_tokens` -1 where
    they are not known. `adapter` counts the names that occur, -1 is none.
    """

    settings: EngineSettings
    request: Ints
    arrived_ts: Ints
    left_ts: Ints
    num_prompt_tokens: Ints
    num_output_tokens: Ints
    max_tokens: Ints
    priority: Ints
    num_shared_tokens: Ints
    adapter: Ints
    sql: str

    def __len__(self) -> int:
        return len(self.request)

    @property
    def is_finished(self) -> Bools:
        """Which requests have left."""
        return np.asarray(self.left_ts != OPEN)

    @cached_property
    def full_tokens(self) -> Ints:
        """Prompt and output at the end of each: of an open one, as many as it may still write."""
        limit = self.settings.max_model_len
        outputs = np.where(self.is_finished, self.num_output_tokens, np.maximum(self.max_tokens, 0))
        tokens = self.num_prompt_tokens + np.maximum(outputs, 0)
        return np.asarray(tokens if limit is None else np.minimum(tokens, max(limit, 1)))

    @cached_property
    def full_blocks(self) -> Ints:
        """KV blocks that each takes at full length; tokens where that is not known."""
        return self.settings.blocks_of_each(self.full_tokens)

    def blocks_known(self) -> Bools:
        """Which requests' full length is known: those that ended; all of them where few have."""
        finished = self.is_finished
        return finished if int(finished.sum()) >= 5 else np.ones(len(self), dtype=np.bool_)

    @cached_property
    def quick_ns(self) -> int | None:
        """Time in the engine of the quickest tenth that ended; `None` where nobody has."""
        took = (self.left_ts - self.arrived_ts)[self.is_finished]
        return int(np.quantile(took, 0.1)) if len(took) else None

    def offered(self, which: Bools, start_ts: int, end_ts: int) -> float | None:
        """Returns how many of `which` would be in the engine if none were held up.

        Arrivals per time x the time of the quickest tenth (Little's law).
        """
        if self.quick_ns is None or end_ts <= start_ts:
            return None
        arrived = which & (self.arrived_ts >= start_ts) & (self.arrived_ts <= end_ts)
        return float(arrived.sum()) * self.quick_ns / (end_ts - start_ts)

    def in_flight_at(self, moments: Ints) -> Ints:
        """Returns how many requests are in the engine just after each moment."""
        left = np.sort(self.left_ts)
        arrived = np.searchsorted(self.arrived_ts, moments, side="right")
        gone = np.searchsorted(left, moments, side="right")
        return np.asarray(arrived - gone, dtype=np.int64)

    def only(self, which: Bools) -> Traffic:
        """Returns some of the requests, as if the others had never come."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {n: v[which] for n, v in columns.items() if isinstance(v, np.ndarray)}
        return Traffic(**(columns | arrays))

    def between(self, start_ts: int, end_ts: int) -> Bools:
        """Returns which requests were in the engine at some time of a stretch."""
        return np.asarray((self.arrived_ts <= end_ts) & (self.left_ts >= start_ts))


def read_traffic(log: QueryLog, scope: Scope, settings: EngineSettings) -> Traffic:
    """Returns the requests that were in the engine in `scope`, as far as its end can know."""
    sql = scope.fill(TRAFFIC_SQL)
    table = log.query(sql)

    def column(name: str, missing: int = -1) -> Ints:
        values = table.column(name).combine_chunks().fill_null(missing)
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)

    return Traffic(
        settings=settings,
        request=column("request"),
        arrived_ts=column("arrived_ts"),
        left_ts=column("left_ts", int(OPEN)),
        num_prompt_tokens=column("num_prompt_tokens"),
        num_output_tokens=column("num_output_tokens"),
        max_tokens=column("max_tokens"),
        priority=column("priority"),
        num_shared_tokens=column("num_shared_tokens"),
        adapter=_codes(table.column("adapter").to_pylist()),
        sql=sql,
    )


def _codes(names: list[str | None]) -> Ints:
    """Returns a number for each name, in order of appearance; -1 for none."""
    seen: dict[str, int] = {}
    codes = [-1 if name is None else seen.setdefault(name, len(seen)) for name in names]
    return np.array(codes, dtype=np.int64)
