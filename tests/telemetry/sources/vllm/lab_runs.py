"""Everything that is run in vLLM's environment at once, since starting that takes seconds.

`python -m tests.telemetry.sources.vllm.lab_runs OUT VECTOR...` writes `OUT/runs.pickle`, a
`LabRuns`, and leaves the ring of a storm in `OUT/rings`.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telemetry.recorder import ListRecorder
from tests.telemetry.sources.vllm.what_happened import StepTruth

NUM_RANDOM_RUNS = 200


@dataclass
class RandomResult:
    """One random run: its record, and what vLLM itself says."""

    recorder: ListRecorder
    truth: list[StepTruth]
    counts_ahead: bool
    """Whether tokens count as computed that may never be: drafts, or several steps in flight."""


@dataclass
class BrokenResult:
    """Runs with something of ours broken: whether vLLM did all the same what it does without us."""

    is_unchanged: bool
    num_errors: int
    is_off: bool
    num_degraded: int


@dataclass(repr=False)
class LabRuns:
    """What all runs came to."""

    random: dict[int, RandomResult] = field(default_factory=dict)
    vectors: dict[str, ListRecorder] = field(default_factory=dict)
    situations: dict[str, ListRecorder] = field(default_factory=dict)
    broken: dict[str, BrokenResult] = field(default_factory=dict)
    num_storm_preemptions: int = 0


def main(arguments: list[str]) -> None:
    """Runs everything."""
    from tests.telemetry.sources.vllm import broken, situations
    from tests.telemetry.sources.vllm.lab import Lab, Script, Settings, write_model
    from tests.telemetry.sources.vllm.random_runs import RandomRun
    from tests.telemetry.sources.vllm.vector_runs import VectorLab

    out, *paths = map(Path, arguments)
    model_dir = write_model(out / "model")
    runs = LabRuns()
    for seed in range(NUM_RANDOM_RUNS):
        recorder = ListRecorder()
        run = RandomRun(seed, model_dir, recorder)
        run.play()
        settings = run.lab.settings
        counts_ahead = settings.num_drafts > 0 or settings.num_ahead > 1
        runs.random[seed] = RandomResult(recorder, run.lab.truth, counts_ahead)
    for path in paths:
        vector = json.loads(path.read_text())
        vector_lab = VectorLab(vector, model_dir)
        vector_lab.play()
        runs.vectors[f"{vector['category']}/{vector['name']}"] = vector_lab.record()
    runs.situations = situations.play_all(model_dir)
    runs.broken = broken.play_all(model_dir)
    storm = Lab(Settings(num_blocks=65, max_num_seqs=32), model_dir, ring_recorder(out / "rings"))
    for number in range(28):
        storm.add(Script(name=f"storm-{number}", prompt=64, max_tokens=160))
    storm.run(max_steps=2000)
    runs.num_storm_preemptions = sum(len(step.preempted) for step in storm.truth)
    storm.scheduler.shutdown()
    (out / "runs.pickle").write_bytes(pickle.dumps(runs))


def ring_recorder(rings: Path) -> Any:
    """Returns what opens a ring as the plug-in does."""
    from telemetry.sources.vllm.subclassing import RingOpener, look_at
    from tests.telemetry.sources.vllm.lab import Scheduler

    environ = {**os.environ, "STEPSCOPE_RING_DIR": str(rings), "STEPSCOPE_RING_MB": "8"}
    return RingOpener(look_at(Scheduler), environ)


if __name__ == "__main__":
    from tests.telemetry.sources.vllm import lab_runs

    lab_runs.main(sys.argv[1:])
