"""Predictions as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagnose.replay.prediction import Predicted, Prediction
from diagnose.replay.smallest import Step
from diagnose.replay.step_times import FEATURES
from diagnose.replay.whatif_words import flags_of, headline
from diagnose.replay.workload import Workload


def whatif_json(
    workload: Workload, predictions: Sequence[Prediction], steps: Sequence[Step] = ()
) -> dict[str, Any]:
    """Returns what `stepscope whatif --json` prints; docs/whatif.md describes it."""
    times = workload.step_times
    return {
        "engine": f"{workload.engine:016x}",
        "start_ts": workload.start_ts,
        "duration_seconds": workload.duration_ns / 1e9,
        "num_requests": workload.num_requests,
        "clients": {
            "kind": workload.clients.kind,
            "num_in_flight": workload.clients.num_in_flight,
            "reason": workload.clients.reason,
        },
        "step_times": {
            "num_steps": times.num_steps,
            "mean_seconds": times.mean_ns / 1e9,
            "error_ratio": times.error_ratio,
            "explained_ratio": times.explained_ratio,
            "nanoseconds_by_feature": {
                name: value
                for name, value in zip(FEATURES, times.coefficients, strict=True)
                if value
            },
        },
        "predictions": [_prediction(each) for each in predictions],
        "smallest": [_step(step) for step in steps],
    }


def _prediction(prediction: Prediction) -> dict[str, Any]:
    return {
        "changes": [
            {"name": each.name, "before": each.before, "after": each.after}
            for each in prediction.changes
        ],
        "headline": headline(prediction),
        "flags": flags_of(prediction),
        "costs_more_than_it_gains": prediction.costs_more_than_it_gains,
        "num_replays": prediction.num_replays,
        "preemptions_by_cause": [
            {"cause": cause, "replayed": before, "predicted": after}
            for cause, before, after in prediction.by_cause
        ],
        "quantities": [_quantity(each) for each in prediction.quantities],
        "notes": list(prediction.notes),
    }


def _quantity(each: Predicted) -> dict[str, Any]:
    return {
        "name": each.quantity.name,
        "unit": each.quantity.unit,
        "recorded": each.recorded,
        "replayed": each.replayed,
        "error": each.error,
        "trust": each.trust.value,
        "predicted": each.predicted,
        "low": each.low,
        "high": each.high,
        "change": each.change,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "goal": step.goal,
        "setting": step.setting,
        "value": step.value,
        "needs": step.needs,
        **_prediction(step.prediction),
    }
