"""What actions would do, predicted by replaying the load of an episode with each of them.

Replays are compared with each other; beside each number stands how far the replay under the
recorded settings is off the record, and beyond a quarter nothing is said (`replay.prediction`).

Work is limited by the number of scheduler steps, as for shares (`attribution`): where an episode is
longer its beginning is replayed, and where even that is too short nothing is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diagnose.finding import Action, Effect
from diagnose.reading import QueryLog, Scope, read_row, read_rows
from diagnose.replay import ReplayError, read_workload
from diagnose.replay.prediction import Prediction, Replays, Trust, predict
from diagnose.replay.settable import ChangeError, parse_setting
from diagnose.words import plural
from engine.config import ConfigError

QUANTITIES = ("num_preemptions", "ttft_p95", "longest_pause_p95", "output_tokens_per_second")
LIMIT_SHARE = 2
"""Effects may take one part in so many of the work that shares may."""
MAX_REPLAYS = 3
LEAST_STEPS = 300
"""A shorter beginning says too little of an episode. Starting value."""
THOROUGH_REPLAYS = 9

_STEPS = "SELECT coalesce(sum(num_repeats), 0)::BIGINT AS n FROM steps WHERE {where}"
_LAST = "SELECT ts FROM steps WHERE {where} ORDER BY step LIMIT 1 OFFSET %d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Actions with what they would do, and a sentence on how that is known, or why it is not."""

    actions: tuple[Action, ...]
    sentence: str


def predict_effects(
    log: QueryLog, stretch: Scope, actions: Sequence[Action], work_limit: int | None
) -> Predictions:
    """Returns the actions with their effects.

    Args:
        stretch: the episode.
        work_limit: scheduler steps that a diagnosis may replay; `None` sets no limit.
    """
    settable = [action for action in actions if action.flag is not None]
    if not settable:
        return Predictions(actions=tuple(actions), sentence="")
    limit = None if work_limit is None else work_limit // LIMIT_SHARE
    num_loads = len(settable) + 1
    num_steps = int(read_row(log, stretch.fill(_STEPS))["n"])
    part = num_steps if limit is None else min(num_steps, limit // num_loads)
    if limit is not None and part < min(LEAST_STEPS, num_steps):
        why = f"{num_loads} replays of {num_steps:,} steps" if limit else "a replay"
        return _none(actions, f"that takes {why} (stepscope diagnose --thorough)")
    num_replays = THOROUGH_REPLAYS
    if limit is not None:
        num_replays = max(1, min(MAX_REPLAYS, limit // max(1, part * num_loads)))
    try:
        return _predicted(log, _beginning(log, stretch, num_steps, part), actions, num_replays)
    except (ReplayError, ConfigError, ChangeError) as error:
        return _none(actions, str(error))


def _none(actions: Sequence[Action], why: str) -> Predictions:
    return Predictions(actions=tuple(actions), sentence=f"No effect is predicted: {why}.")


def _beginning(log: QueryLog, stretch: Scope, num_steps: int, part: int) -> Scope:
    """Returns the first steps of a stretch."""
    if part >= num_steps:
        return stretch
    rows = read_rows(log, stretch.fill(_LAST % (part - 1)))
    return replace(stretch, end_ts=int(rows[0]["ts"])) if rows else stretch


def _predicted(
    log: QueryLog, scope: Scope, actions: Sequence[Action], num_replays: int
) -> Predictions:
    workload = read_workload(log, scope.engine, scope.start_ts, scope.end_ts)
    before = Replays.of(workload, num_replays)
    found = []
    for action in actions:
        if action.flag is not None:
            changes = dict([parse_setting(f"{action.flag}={action.new}")])
            prediction = predict(workload, changes, num_replays=num_replays, before=before)
            action = replace(action, predicted=_effects(prediction))
        found.append(action)
    return Predictions(
        actions=tuple(found),
        sentence=f"{plural(workload.num_requests, 'request')} of {scope.duration_ns / 1e9:,.1f} s "
        f"replayed, {'once' if num_replays == 1 else f'{num_replays} times'} each.",
    )


def _effects(prediction: Prediction) -> tuple[Effect, ...]:
    return tuple(
        Effect(
            name=name,
            label=each.quantity.label,
            unit=each.quantity.unit,
            before=each.replayed,
            after=each.predicted,
            error=each.error,
            is_exact=each.trust is Trust.FINE,
        )
        for name in QUANTITIES
        for each in (prediction.of(name),)
    )
