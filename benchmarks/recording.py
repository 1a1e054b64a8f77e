"""What recording costs.

    python -m benchmarks.recording

Part one: `record_step` alone, at 1 to 1,024 requests a step, p50 and p99 of single calls, with the
heartbeat running and the ring going round. The goal is 15 µs at 256 requests.

Part two: an engine's throughput with recording on and off (`benchmarks.engine_throughput`).
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import engine_throughput
from telemetry.records import RequestAdmitted, RequestArrived, RunClock, StepRequests, StepRow
from telemetry.ring import RingRecorder, ring_directories

SIZES = (1, 16, 64, 256, 1024)
GOAL_US = 15.0
GOAL_SIZE = 256


def dense_rows(num: int) -> StepRequests:
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


def step_row(step: int, ts: int, num: int) -> StepRow:
    """Returns a step as an engine without connector, LoRA or speculation fills it."""
    return StepRow(
        step=step,
        ts=ts,
        updated_ts=ts + 20_000_000,
        schedule_ns=40_000,
        inputs_ns=300_000,
        forward_ns=18_000_000,
        sample_ns=400_000,
        update_ns=60_000,
        num_steps_in_flight=1,
        token_budget=2048,
        num_scheduled_tokens=num,
        num_prefill_tokens=0,
        num_decode_tokens=num,
        num_recomputed_tokens=0,
        num_prefill_requests=0,
        num_decode_requests=num,
        num_zero_requests=0,
        top_request=1,
        top_request_tokens=1,
        num_running=num,
        num_waiting=10,
        num_skipped_waiting=0,
        num_kv_holding_waiting=0,
        num_blocks_free_unhashed=100,
        num_blocks_free_cached=50,
        num_blocks_running=800,
        num_blocks_waiting=0,
        num_blocks_finished=0,
        num_blocks_deferred_free=0,
        num_admitted=0,
        num_resumed=0,
        num_preempted=0,
        num_preemptions_total=0,
        stop_reason=1,
        num_prefix_hit_tokens=0,
    )


def measure_steps(ring: RingRecorder, clock: RunClock, num: int, calls: int) -> tuple[float, ...]:
    """Returns p50 and p99 in µs of recording a step with `num` requests."""
    requests, record, now = dense_rows(num), ring.record_step, time.perf_counter_ns
    took = np.empty(calls)
    for call in range(-200, calls):
        step = step_row(call + 200, clock.now(), num)
        begin = now()
        record(step, (), requests)
        took[call] = now() - begin
    p50, p99 = np.percentile(took, [50, 99]) / 1000
    return float(p50), float(p99)


def measure_event(ring: RingRecorder, clock: RunClock, cls: type, calls: int) -> float:
    """Returns the median cost in µs of one more event in a call."""
    row = cls(step=1, ts=clock.now(), request=1)
    if cls is RequestArrived:
        row.request_id, row.num_prompt_tokens, row.max_tokens = "cmpl-0123456789", 512, 128
    now, took = time.perf_counter_ns, {}
    for size in (1, 21):
        samples = []
        for _ in range(calls):
            begin = now()
            ring.record_events([row] * size)
            samples.append(now() - begin)
        took[size] = float(np.median(samples))
    return (took[21] - took[1]) / 20 / 1000


def main() -> int:
    """Prints the table; exit code 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=400, help="of blocks, on and off")
    args = parser.parse_args()
    calls = args.calls
    places = [place.parent for place in ring_directories(None)]
    with tempfile.TemporaryDirectory(dir=places[0] if places[0].is_dir() else None) as directory:
        clock = RunClock.start()
        ring = RingRecorder(Path(directory), clock)
        gc.disable()
        print("record_step      p50 µs   p99 µs")
        medians = {}
        for num in SIZES:
            medians[num], p99 = measure_steps(ring, clock, num, calls)
            print(f"{num:5,} requests {medians[num]:8.1f} {p99:8.1f}")
        for cls in (RequestAdmitted, RequestArrived):
            cost = measure_event(ring, clock, cls, calls // 20)
            print(f"one more {cls.__name__:<16} {cost:.1f} µs")
        ring.close()
    met = medians[GOAL_SIZE] <= GOAL_US
    print(f"goal: at most {GOAL_US:g} µs at {GOAL_SIZE} requests: {'met' if met else 'MISSED'}")
    engine_throughput.measure(args.pairs)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
