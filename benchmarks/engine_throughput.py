"""Engine throughput with recording on and off, alternated inside one process.

A closed loop of 32 requests on the tiny Llama: whoever ends is replaced, so steps decode, prefill
and finish. Recording is switched every few steps, in random order within a pair of blocks; off
means that no row is built. What is reported is the ratio within pairs, which the drift of a noisy
machine leaves alone, with a 95 % interval from resampling the pairs.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from engine.core import EngineCore, NewRequest
from engine.runner.model import load_model
from engine.runner.model_runner import ModelRunner
from engine.runner.tiny_llama import tiny_llama
from engine.sampling import SamplingParams
from telemetry.recorder import NullRecorder, Recorder
from telemetry.records import EngineRow, Event, RunClock, StepRequests, StepRow
from telemetry.ring import RingRecorder, ring_directories
from telemetry.vocabulary import Phase

NUM_REQUESTS = 32
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 128
STEPS_A_BLOCK = 16
WARM_UP_STEPS = 200


class SwitchedRecorder:
    """Hands everything to one of two recorders."""

    def __init__(self, on: Recorder) -> None:
        self._on, self._off = on, NullRecorder()
        self.target: Recorder = on

    def switch(self, on: bool) -> None:
        self.target = self._on if on else self._off

    @property
    def is_recording(self) -> bool:
        return self.target.is_recording

    def describe_engine(self, engine: EngineRow) -> None:
        self.target.describe_engine(engine)

    def record_step(
        self, step: StepRow, events: Sequence[Event], requests: StepRequests | None
    ) -> None:
        self.target.record_step(step, events, requests)

    def record_events(self, events: Sequence[Event]) -> None:
        self.target.record_events(events)

    def enter_phase(self, step: int, phase: Phase) -> None:
        self.target.enter_phase(step, phase)

    def count_preemptions(self, total: int) -> None:
        self.target.count_preemptions(total)

    def count_error(self, message: str) -> None:
        self.target.count_error(message)

    def close(self) -> None:
        self._on.close()


class ClosedLoop:
    """An engine that always has the same number of requests."""

    def __init__(self, recorder: Recorder, clock: RunClock) -> None:
        model = load_model(tiny_llama(), dtype="float32")
        config = EngineConfig(
            scheduler=SchedulerConfig(max_num_seqs=NUM_REQUESTS),
            cache=CacheConfig(num_gpu_blocks=1024),
        )
        runner = ModelRunner(model, config)
        self._core = EngineCore(
            config, runner, recorder=recorder, clock=clock.now, model_name="tiny-llama"
        )
        self._numbers = itertools.count()
        self._random = random.Random(0)
        for _ in range(NUM_REQUESTS):
            self._add(self._random.randint(1, OUTPUT_TOKENS))

    def _add(self, max_tokens: int) -> None:
        prompt = [self._random.randrange(256) for _ in range(PROMPT_TOKENS)]
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        name = f"r{next(self._numbers)}"
        self._core.add_request(
            NewRequest(request_id=name, prompt_token_ids=prompt, sampling=sampling)
        )

    def run(self, num_steps: int) -> int:
        """Runs steps and returns how many tokens they gave."""
        tokens = 0
        for _ in range(num_steps):
            _, results = self._core.step()
            tokens += sum(len(result.new_token_ids) for result in results)
            for result in results:
                if result.finish_reason is not None:
                    self._add(OUTPUT_TOKENS)
        return tokens


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens a second, and µs of the step loop's own thread a step."""

    throughput: float
    thread_us: float


def measure(num_pairs: int) -> None:
    """Prints throughput with recording on over off, with its interval."""
    places = [place.parent for place in ring_directories(None)]
    with tempfile.TemporaryDirectory(dir=places[0] if places[0].is_dir() else None) as directory:
        clock = RunClock.start()
        recorder = SwitchedRecorder(RingRecorder(Path(directory), clock))
        loop = ClosedLoop(recorder, clock)
        loop.run(WARM_UP_STEPS)
        pairs = [_pair(loop, recorder) for _ in range(num_pairs)]
        recorder.close()
    on = np.array([pair[True].throughput for pair in pairs])
    off = np.array([pair[False].throughput for pair in pairs])
    cpu_on = np.array([pair[True].thread_us for pair in pairs])
    cpu_off = np.array([pair[False].thread_us for pair in pairs])
    low, middle, high = _interval(on / off)
    print(f"\nengine, {NUM_REQUESTS} requests, {num_pairs} pairs of {STEPS_A_BLOCK} steps")
    print(f"recording off    {np.median(off):8,.0f} tokens/s")
    print(f"recording on     {np.median(on):8,.0f} tokens/s")
    print(f"on / off         {middle:8.4f}   95 % interval {low:.4f} to {high:.4f}")
    print(f"throughput lost  {1 - middle:8.2%}   at most {1 - low:.2%} (goal: at most 1 %)")
    low, middle, high = _interval(cpu_on - cpu_off)
    print(f"step loop's CPU  {middle:+8.1f} µs a step, 95 % interval {low:+.1f} to {high:+.1f}")


def _pair(loop: ClosedLoop, recorder: SwitchedRecorder) -> dict[bool, Block]:
    order = [True, False]
    random.shuffle(order)
    return {on: _block(loop, recorder, on) for on in order}


def _block(loop: ClosedLoop, recorder: SwitchedRecorder, on: bool) -> Block:
    recorder.switch(on)
    wall, cpu = time.perf_counter(), time.thread_time()
    tokens = loop.run(STEPS_A_BLOCK)
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    return Block(tokens / wall, cpu / STEPS_A_BLOCK * 1e6)


def _interval(values: np.ndarray, resamples: int = 4000) -> tuple[float, float, float]:
    """Returns the median and its 95 % interval from resampling."""
    generator = np.random.default_rng(0)
    drawn = generator.choice(values, size=(resamples, len(values)))
    medians = np.median(drawn, axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(np.median(values)), float(high)
