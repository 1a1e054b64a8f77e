"""How many of these requests the KV pool holds to their end, against how many are let in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnose.causes.traffic import Traffic
from diagnose.facts import EngineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Blocks at full length of the requests of a stretch, against the pool.

    `None` where pool, block size or slots are not recorded, or no request is known.
    """

    pool: int | None
    slots: int | None
    num_measured: int
    p50_blocks: int | None
    p95_blocks: int | None
    mean_blocks: float | None
    max_blocks: int | None
    peak_in_flight: int

    @property
    def holds(self) -> int | None:
        """Requests of 95th-percentile length that the pool holds to their end."""
        if self.pool is None or not self.p95_blocks:
            return None
        return self.pool // self.p95_blocks

    @property
    def peak_running(self) -> int:
        """As many of those in flight as the slots let run."""
        return self.peak_in_flight if self.slots is None else min(self.peak_in_flight, self.slots)

    @property
    def peak_blocks(self) -> int | None:
        """Blocks that so many of these requests need at full length."""
        if self.mean_blocks is None:
            return None
        return round(self.peak_running * self.mean_blocks)

    @property
    def is_one_length(self) -> bool:
        """Whether median and 95th percentile fill the same number of blocks."""
        return self.p50_blocks is not None and self.p50_blocks == self.p95_blocks

    @property
    def these(self) -> str:
        """Returns `these requests` or `requests of p95 length (7 blocks)`."""
        if self.is_one_length:
            return "of these requests"
        noun = "request" if self.holds == 1 else "requests"
        return f"{noun} of p95 length ({self.p95_blocks} blocks)"


def measure_capacity(
    traffic: Traffic, settings: EngineSettings, start_ts: int, end_ts: int
) -> Capacity:
    """Returns the capacity for the requests that were in the engine in a stretch."""
    inside = traffic.between(start_ts, end_ts)
    known = inside & traffic.blocks_known()
    blocks = traffic.full_blocks[known if known.any() else inside]
    has_sizes = len(blocks) > 0 and bool(settings.kv_groups)
    moments = traffic.arrived_ts[inside]
    moments = moments[moments >= start_ts] if (moments >= start_ts).any() else moments
    return Capacity(
        pool=settings.num_usable_blocks,
        slots=settings.slots,
        num_measured=len(blocks),
        p50_blocks=int(np.quantile(blocks, 0.5, method="higher")) if has_sizes else None,
        p95_blocks=int(np.quantile(blocks, 0.95, method="higher")) if has_sizes else None,
        mean_blocks=float(blocks.mean()) if has_sizes else None,
        max_blocks=int(blocks.max()) if has_sizes else None,
        peak_in_flight=int(traffic.in_flight_at(moments).max()) if len(moments) else 0,
    )
