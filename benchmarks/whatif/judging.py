"""Back-tests and predictions of all runs, and what was measured once the change was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.whatif.playing import log_of_run
from benchmarks.whatif.runs import Run
from diagnose.reading import QueryLog, read_rows
from diagnose.replay import read_workload
from diagnose.replay.measures import Measures
from diagnose.replay.prediction import NUM_REPLAYS, Predicted, predict
from diagnose.replay.workload import Workload


def predicted(run: Run, folder: Path) -> dict[str, Any]:
    """Returns what is predicted of a run's change, from the log of the run as it is.

    Raises:
        ReplayError: the log cannot be replayed.
    """
    with log_of_run(run, folder, is_changed=False) as log:
        workload = read_workload(log, only_engine(log))
    prediction = predict(workload, dict([run.change]), num_replays=NUM_REPLAYS)
    return {
        "clients": workload.clients.kind,
        "num_in_flight": workload.clients.num_in_flight,
        "num_requests": workload.num_requests,
        "step_error": workload.step_times.error_ratio,
        "step_ms": workload.step_times.mean_ns / 1e6,
        "quantities": {each.quantity.name: _numbers(each) for each in prediction.quantities},
        "notes": list(prediction.notes),
    }


def _numbers(each: Predicted) -> dict[str, Any]:
    return {
        "recorded": each.recorded,
        "replayed": each.replayed,
        "error": each.error,
        "trust": each.trust.value,
        "predicted": each.predicted,
        "low": each.low,
        "high": each.high,
        "change": each.change,
        "is_clear": each.is_clear,
    }


def measured(run: Run, folder: Path) -> tuple[Workload, Measures]:
    """Returns the load that was played with the change made, and what was measured."""
    with log_of_run(run, folder, is_changed=True) as log:
        workload = read_workload(log, only_engine(log))
    return workload, workload.recorded


def only_engine(log: QueryLog) -> int:
    """Returns the one engine of a log."""
    (row,) = read_rows(log, "SELECT DISTINCT engine FROM steps")
    return int(row["engine"])
