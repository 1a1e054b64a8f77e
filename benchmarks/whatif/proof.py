"""A proof in four parts, each of which can be written down before the next one is begun.

Runs are recorded; what a change would do is predicted from their logs; the change is made and the
same load played again; both are set beside each other. A prediction that came after its change was
made would prove nothing: it is refused, and so is a change of which nothing was predicted.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.whatif.judging import predicted
from benchmarks.whatif.playing import folder_of, is_played, play
from benchmarks.whatif.runs import Run
from benchmarks.whatif.sending import PlayError

Told = dict[str, dict[str, Any]]
"""What was predicted, by the run's name."""


def record(run: Run, folder: Path) -> None:
    """Plays a run as it is.

    Raises:
        PlayError: it was not played to its end.
    """
    play(run, folder, is_changed=False)


def predict(run: Run, folder: Path, file: Path) -> None:
    """Writes down what a run's change would do, in place of what was predicted before.

    Raises:
        PlayError: the run has not been recorded, or its change has been made already.
        ReplayError: its log cannot be replayed.
    """
    if not is_played(run, folder, is_changed=False):
        raise PlayError(f"{run.name} has not been recorded in {folder}: record it first")
    changed = folder_of(run, folder, is_changed=True)
    if changed.exists():
        raise PlayError(
            f"the change of {run.name} has been made already ({changed}), and what is predicted "
            "now would be no prediction: add a run with another seed"
        )
    when = datetime.now(UTC).isoformat(timespec="seconds")
    told = read_predictions(file)
    told[run.name] = {"seed": run.seed, "predicted_at": when, **predicted(run, folder)}
    file.write_text(json.dumps(told, indent=1) + "\n")


def change(run: Run, folder: Path, file: Path) -> None:
    """Makes a run's change and plays the same load again.

    Raises:
        PlayError: nothing was predicted of it, or it was not played to its end.
    """
    told = read_predictions(file).get(run.name)
    if told is None or told["seed"] != run.seed:
        raise PlayError(
            f"{file} says nothing of {run.name} with seed {run.seed}: predict it before the change "
            "is made"
        )
    play(run, folder, is_changed=True)


def read_predictions(file: Path) -> Told:
    """Returns what was predicted; nothing where there is no such file."""
    told: Told = json.loads(file.read_text()) if file.exists() else {}
    return told
