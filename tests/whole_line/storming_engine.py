"""An engine in an endless preemption storm: `python -m tests.whole_line.storming_engine LOG`.

Everything but the model is real: core, scheduler, ring. After each step its number goes to stdout.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engine.config import CacheConfig, EngineConfig, SchedulerConfig
from engine.core import EngineCore, NewRequest
from engine.runner.scripted import ScriptedRunner
from engine.sampling import SamplingParams
from telemetry.records import EngineRow, RunClock
from telemetry.ring import open_recorder


def main() -> None:
    """Runs until it is killed, or until its stdout is closed."""
    clock = RunClock.start()
    recorder = open_recorder(Path(sys.argv[1]), clock)
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=32),
        cache=CacheConfig(num_gpu_blocks=60, block_size=4),
    )
    recorder.describe_engine(
        EngineRow(started_ts=clock.now(), model="storm", num_usable_blocks=59, block_size=4)
    )
    core = EngineCore(
        config,
        ScriptedRunner(lambda request_id, n: 7, step_seconds=lambda output: 0.0005),
        recorder=recorder,
        clock=clock.now,
        model_name="storm",
    )
    sampling = SamplingParams(max_tokens=30, ignore_eos=True)
    number = 0
    while True:
        while core.scheduler.num_running + core.scheduler.num_waiting < 32:
            prompt = range(number * 16, number * 16 + 16)
            core.add_request(
                NewRequest(
                    request_id=f"r{number}", prompt_token_ids=list(prompt), sampling=sampling
                )
            )
            number += 1
        output, _ = core.step()
        sys.stdout.write(f"{output.step}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
