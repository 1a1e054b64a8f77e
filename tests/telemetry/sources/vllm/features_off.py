"""Random runs in which a feature is off: runs in vLLM's environment, and prints what came of it."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from telemetry.recorder import ListRecorder
from telemetry.sources.vllm.compatibility import Features
from telemetry.vocabulary import EventKind

SEEDS = range(24)
"""Every kind of extra, with each policy, with and without asynchronous scheduling."""
BARE = "all but step_rows"


def play(seed: int, model_dir: Path, recorder: Any, features: Features | None = None) -> Any:
    from tests.telemetry.sources.vllm.random_runs import RandomRun

    run = RandomRun(seed, model_dir, recorder, features)
    run.play()
    return run.outputs


def choices() -> dict[str, Features]:
    """Returns what is recorded, by what is not."""
    names = [f.name for f in fields(Features)]
    found = {name: Features(**{name: False}) for name in names if name != "step_rows"}
    return {**found, BARE: Features(**{name: name == "step_rows" for name in names})}


def main(model: Path) -> dict[str, Any]:
    """Returns, by what is off, how vLLM took it, our errors, and what was still recorded."""
    from tests.telemetry.sources.vllm.lab import write_model

    model_dir = write_model(model)
    expected = {seed: play(seed, model_dir, None) for seed in SEEDS}
    found = {}
    for name, features in choices().items():
        recorders = {seed: ListRecorder() for seed in SEEDS}
        same = [
            play(seed, model_dir, recorder, features) == expected[seed]
            for seed, recorder in recorders.items()
        ]
        events = {event.kind for recorder in recorders.values() for event in recorder.events}
        found[name] = {
            "is_unchanged": all(same),
            "errors": sorted({error for each in recorders.values() for error in each.errors}),
            "num_steps": sum(s.num_repeats for each in recorders.values() for s in each.steps),
            "kinds": sorted(EventKind(kind).name for kind in events),
        }
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
