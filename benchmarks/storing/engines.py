"""Simulated engines: they decode nothing, and write the rings that a busy engine would.

    python -m benchmarks.storing.engines --log DIR --rings DIR --engines 8 --seconds 20

Each step has the same number of running requests, oldest first. One that has its last token ends,
and another arrives at the end of the queue with its prompt; now and then the last few are given
nothing. So dense rows change as those of an engine do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from telemetry.records import (
    EngineRow,
    Event,
    RequestAdmitted,
    RequestArrived,
    RequestFinished,
    RunClock,
    StepRequests,
    StepRow,
)
from telemetry.ring import RingRecorder
from telemetry.vocabulary import FinishReason, StopReason, ZeroReason

BLOCK_SIZE = 16
NUM_REQUESTS = 256
STEPS_PER_SECOND = 50
DEFAULT_RING_BYTES = 32 << 20
_PROMPTS = (64, 1024)
_OUTPUTS = (100, 400)
_NOT_ZERO = 255
_SHORT_EVERY = 64
"""Steps from one that is short of budget to the next."""
_NUM_SHORT = 8


class SimulatedEngine:
    """An engine with `num_requests` running requests, and its ring."""

    def __init__(
        self,
        rings: Path,
        log: Path,
        *,
        clock: RunClock | None = None,
        num_requests: int = NUM_REQUESTS,
        seed: int = 0,
        ring_bytes: int = DEFAULT_RING_BYTES,
    ) -> None:
        self.clock = clock or RunClock.start()
        self.ring = RingRecorder(rings, self.clock, log=log, ring_bytes=ring_bytes)
        self.num_steps = 0
        self._random = np.random.default_rng(seed)
        self._request = np.arange(num_requests, dtype=np.uint32)
        self._prompt = self._lengths(_PROMPTS, num_requests)
        self._left = self._lengths((1, _OUTPUTS[1]), num_requests)
        self._computed = self._prompt + self._lengths((0, _OUTPUTS[1]), num_requests)
        self._next = num_requests
        self.ring.describe_engine(
            EngineRow(model="simulated", block_size=BLOCK_SIZE, max_num_seqs=num_requests)
        )

    def _lengths(self, limits: tuple[int, int], num: int) -> np.ndarray:
        return self._random.integers(*limits, num).astype(np.uint32)

    def step(self, ts: int | None = None) -> None:
        """Records one step that begins at `ts`, now where nothing is said."""
        ts = self.clock.now() if ts is None else ts
        events = self._turnover(ts)
        is_prefill = self._computed < self._prompt
        wanted = np.where(is_prefill, self._prompt - self._computed, 1).astype(np.uint32)
        given, reasons = wanted.copy(), np.full(len(wanted), _NOT_ZERO, dtype=np.uint8)
        if self.num_steps % _SHORT_EVERY == _SHORT_EVERY - 1:
            given[-_NUM_SHORT:], reasons[-_NUM_SHORT:] = 0, ZeroReason.token_budget
        rows = StepRequests(
            request=self._request,
            num_wanted_tokens=wanted,
            num_scheduled_tokens=given,
            num_computed_tokens=self._computed,
            num_known_tokens=self._computed + wanted,
            num_blocks=(self._computed + given + BLOCK_SIZE - 1) // BLOCK_SIZE,
            zero_reason=reasons,
        )
        self.ring.record_step(self._row(ts, int(given.sum()), int(is_prefill.sum())), events, rows)
        self._computed = self._computed + given
        self._left = self._left - (given > 0)
        self.num_steps += 1

    def _turnover(self, ts: int) -> list[Event]:
        """Ends the requests without a token left and lets as many arrive; returns the events."""
        is_over = self._left == 0
        ended = self._request[is_over].tolist()
        new = np.arange(self._next, self._next + len(ended), dtype=np.uint32)
        self._next += len(ended)
        for name, values in (
            ("_request", new),
            ("_prompt", self._lengths(_PROMPTS, len(new))),
            ("_left", self._lengths(_OUTPUTS, len(new))),
            ("_computed", np.zeros_like(new)),
        ):
            setattr(self, name, np.concatenate([getattr(self, name)[~is_over], values]))
        step = self.num_steps
        events: list[Event] = [
            RequestFinished(step=step, ts=ts, request=request, reason=FinishReason.length)
            for request in ended
        ]
        for request in new.tolist():
            name = f"cmpl-{request:012d}"
            events += [
                RequestArrived(step=step, ts=ts, request=request, request_id=name),
                RequestAdmitted(step=step, ts=ts, request=request, num_hit_tokens=0),
            ]
        return events

    def _row(self, ts: int, num_tokens: int, num_starts: int) -> StepRow:
        num = len(self._request)
        return StepRow(
            step=self.num_steps,
            ts=ts,
            updated_ts=ts + 19_000_000,
            schedule_ns=40_000 + self.num_steps % 977,
            inputs_ns=300_000 + self.num_steps % 1013,
            forward_ns=18_000_000 + 1000 * num_tokens,
            sample_ns=400_000 + self.num_steps % 997,
            update_ns=60_000 + self.num_steps % 991,
            num_steps_in_flight=1,
            token_budget=2048,
            num_scheduled_tokens=num_tokens,
            num_prefill_requests=num_starts,
            num_decode_requests=num - num_starts,
            num_zero_requests=0,
            num_running=num,
            num_waiting=10,
            num_blocks_free_unhashed=100,
            num_blocks_free_cached=50,
            num_blocks_running=int(self._computed.sum()) // BLOCK_SIZE,
            num_admitted=num_starts,
            num_preempted=0,
            num_preemptions_total=0,
            stop_reason=StopReason.max_num_seqs,
        )

    def close(self) -> None:
        """Says good-bye."""
        self.ring.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What a course of simulated engines did."""

    num_steps: int
    seconds: float
    cpu_seconds: float
    latest_seconds: float
    """How late the latest step began."""


def run(
    rings: Path, log: Path, *, num_engines: int, seconds: float, rate: float, num_requests: int
) -> Course:
    """Lets engines step `rate` times a second each, evenly spread; returns what was done."""
    engines = [
        SimulatedEngine(rings, log, num_requests=num_requests, seed=seed)
        for seed in range(num_engines)
    ]
    begin, cpu, latest, done = time.monotonic(), time.process_time(), 0.0, 0
    pause = 1.0 / (rate * num_engines)
    while (now := time.monotonic() - begin) < seconds:
        due = done * pause
        if now < due:
            time.sleep(due - now)
            continue
        latest = max(latest, now - due)
        engines[done % num_engines].step()
        done += 1
    course = Course(
        num_steps=done,
        seconds=time.monotonic() - begin,
        cpu_seconds=time.process_time() - cpu,
        latest_seconds=latest,
    )
    for engine in engines:
        engine.close()
    return course


def main() -> int:
    """Runs engines as a process of their own; prints the course as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--rings", type=Path, required=True)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=STEPS_PER_SECOND)
    parser.add_argument("--requests", type=int, default=NUM_REQUESTS)
    args = parser.parse_args()
    course = run(
        args.rings,
        args.log,
        num_engines=args.engines,
        seconds=args.seconds,
        rate=args.rate,
        num_requests=args.requests,
    )
    print(json.dumps(asdict(course)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
