"""What is known of the recording: the doctor's checks, and what a step costs to write down."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import streamlit as st

from dashboard import source
from dashboard.session import Page
from telemetry.doctor.examination import examine
from telemetry.doctor.report import Examination
from telemetry.records import RunClock, StepRequests, StepRow
from telemetry.ring import RingRecorder
from telemetry.store import Log

CALLS, WARM_UP = 2_000, 200
RING_BYTES = 8 << 20


def examination(page: Page) -> Examination:
    """Returns what `stepscope doctor` says of the page's log."""
    if page.is_live:
        return examine(page.path, opened=page.log)
    return _cached(str(page.path), source.stamp_of(page.path), page.log)


@st.cache_data(show_spinner=False, max_entries=8)
def _cached(path: str, stamp: source.Stamp, _log: Log) -> Examination:
    return examine(Path(path), opened=_log)


def log_bytes(path: Path) -> int:
    """Returns what the log takes on disk."""
    return sum(size for _, _, size in source.stamp_of(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCost:
    """Time to write a step down, measured here and now: of `num_calls` steps of `num_requests`."""

    num_requests: int
    num_calls: int
    p50_ns: int
    p99_ns: int


def measure(num_requests: int, calls: int = CALLS) -> RowCost:
    """Returns what writing a step of so many requests into a ring costs on this machine.

    What the engine does to fill the row is not in it.

    Raises:
        OSError: there is no room for a ring.
    """
    took = np.empty(calls)
    requests = _dense(num_requests)
    with tempfile.TemporaryDirectory(prefix="stepscope-cost-") as directory:
        clock = RunClock.start()
        ring = RingRecorder(Path(directory), clock, ring_bytes=RING_BYTES)
        try:
            for call in range(-WARM_UP, calls):
                row = StepRow(step=call + WARM_UP, ts=clock.now(), num_running=num_requests)
                begin = time.perf_counter_ns()
                ring.record_step(row, (), requests)
                took[call] = time.perf_counter_ns() - begin
        finally:
            ring.close()
    p50, p99 = np.percentile(took, [50, 99])
    return RowCost(num_requests=num_requests, num_calls=calls, p50_ns=int(p50), p99_ns=int(p99))


def _dense(num: int) -> StepRequests:
    counts = np.arange(num, dtype=np.uint32)
    return StepRequests(
        request=counts,
        num_wanted_tokens=counts,
        num_scheduled_tokens=counts,
        num_computed_tokens=counts,
        num_known_tokens=counts,
        num_blocks=counts,
        zero_reason=np.full(num, 255, dtype=np.uint8),
    )
