"""A recorded engine without a model: `python -m tests.whole_line.storming_engine LOG [flags]`.

Everything but the model is real: core, scheduler, ring. After each step its number goes to stdout.
Without flags it is in an endless preemption storm; with `--requests` it ends when they have ended.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from engine.core import EngineCore, NewRequest
from engine.identity import DeviceMemory, LifeEvents, describe, introduce
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from telemetry.records import RunClock
from telemetry.ring import open_recorder

IN_FLIGHT = 32
SAMPLING = SamplingParams(max_tokens=30, ignore_eos=True)


def main() -> None:
    """Runs until it is killed, or until its requests have ended."""
    args = parse_arguments()
    clock = RunClock.start()
    recorder = open_recorder(args.log, clock)
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=args.max_num_seqs),
        cache=CacheConfig(num_gpu_blocks=args.blocks + 1, block_size=4),
    )
    row = introduce(started_ts=clock.now(), model="scripted", version="test")
    recorder.describe_engine(describe(row, config, device="cpu", memory=DeviceMemory()))
    runner = ScriptedRunner(lambda request_id, n: 7, step_seconds=lambda output: args.step_seconds)
    core = EngineCore(config, runner, recorder=recorder, clock=clock.now, model_name="scripted")
    life = LifeEvents(recorder, clock.now)
    life.started()
    numbers = itertools.count() if args.requests is None else iter(range(args.requests))
    while True:
        fill(core, numbers)
        if not core.has_work():
            break
        output, _ = core.step()
        print(output.step, flush=True)
    life.stopped("its requests have ended", step=core.num_steps)
    recorder.close()


def parse_arguments() -> argparse.Namespace:
    """Returns the flags; the defaults are those of a storm."""
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--blocks", type=int, default=59)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--step-seconds", type=float, default=0.0005)
    return parser.parse_args()


def fill(core: EngineCore, numbers: Iterator[int]) -> None:
    """Adds requests until as many as always are in flight."""
    while core.scheduler.num_running + core.scheduler.num_waiting < IN_FLIGHT:
        number = next(numbers, None)
        if number is None:
            return
        prompt = list(range(number * 16, number * 16 + 16))
        core.add_request(
            NewRequest(request_id=f"r{number}", prompt_token_ids=prompt, sampling=SAMPLING)
        )


if __name__ == "__main__":
    main()
